"""Steps that follow each other, as a loop of the program or, where there are few, written out.

A body is written in torch and takes the number of its step, which is a plain number where the
steps are written out and a tensor in a loop; `column`, `row` and comparisons take either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from ...torch_compat import while_loop_op

Step = Any  # an int or a rank-0 tensor
Body = Callable[..., Sequence[Tensor]]

_MOST_WRITTEN_OUT = 4  # a loop keeps the program off the devices that have none


def static_size(op: str, x: Tensor, axis: int) -> int:
    """The size of an axis that steps are counted along."""
    size: Any = x.shape[axis]
    if isinstance(size, int):
        return size
    raise ConversionError(
        f"{op}: a matrix whose size is {size}\n  try   a size that is known when exporting; the "
        "leading axes may be dynamic"
    )


def only_real(op: str, *matrices: Tensor) -> None:
    """Refuse complex matrices."""
    if any(m.is_complex() for m in matrices):
        raise ConversionError(f"{op}: a complex matrix\n  try   its real and imaginary parts")


def steps(
    count: int, body: Body, state: Sequence[Tensor], given: Sequence[Tensor] = ()
) -> list[Tensor]:
    """`state = body(k, *state, *given)` for each `k` below `count`."""
    state = list(state)
    if count <= _MOST_WRITTEN_OUT:
        for k in range(count):
            state = list(body(k, *state, *given))
        return state

    def going_on(k: Tensor, *_: Tensor) -> Tensor:
        return k < count

    def step(k: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        return (k + 1, *map(copied, body(k, *values)))

    start = torch.zeros((), dtype=torch.int64)
    carried = (start, *map(copied, state))
    return list(while_loop_op(going_on, step, carried, tuple(given)))[1:]


def copied(x: Tensor) -> Tensor:
    """In the strides that a loop must keep, and not the tensor it was given for something else.

    Torch calls an empty tensor contiguous whatever its strides are, and then compares them.
    """
    return x.clone(memory_format=torch.contiguous_format)


def conjugated(x: Tensor) -> Tensor:
    """The conjugate as a tensor of its own: a loop does not carry what is conjugate lazily."""
    return x.conj_physical() if x.is_complex() else x


def conjugate_transposed(matrix: Tensor) -> Tensor:
    """The transposed conjugate of each matrix."""
    return conjugated(matrix).mT


def place(k: Step) -> Tensor:
    """The number of a step as an index of one element."""
    return k.reshape(1) if isinstance(k, Tensor) else torch.full((1,), k)


def column(matrix: Tensor, k: Step) -> Tensor:
    """Column `k` of each matrix."""
    return matrix.index_select(-1, place(k)).squeeze(-1)


def row(matrix: Tensor, k: Step) -> Tensor:
    """Row `k` of each matrix."""
    return matrix.index_select(-2, place(k)).squeeze(-2)
