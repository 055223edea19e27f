"""Run sequential steps as a loop in the program, or unrolled if there are few.

A body is written in torch and takes the index of its step: an int if the steps are unrolled, a
tensor in a loop. `column`, `row` and comparisons accept both.
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

_MOST_WRITTEN_OUT = 4  # a program with a loop cannot run on devices without loop support


def static_size(op: str, x: Tensor, axis: int) -> int:
    """Return the size of the axis that determines the number of steps; raise if it is dynamic."""
    size: Any = x.shape[axis]
    if isinstance(size, int):
        return size
    raise ConversionError(
        f"{op}: a matrix whose size is {size}\n  try   a size that is known when exporting; the "
        "leading axes may be dynamic"
    )


def only_real(op: str, *matrices: Tensor) -> None:
    """Raise ConversionError for complex matrices."""
    if any(m.is_complex() for m in matrices):
        raise ConversionError(f"{op}: a complex matrix\n  try   its real and imaginary parts")


def steps(
    count: int, body: Body, state: Sequence[Tensor], given: Sequence[Tensor] = ()
) -> list[Tensor]:
    """Run `state = body(k, *state, *given)` for each `k` below `count`; return the last state."""
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
    """Return a contiguous copy: a loop must keep the strides and must not alias its operands.

    `contiguous()` is not enough: torch reports an empty tensor as contiguous whatever its strides
    are, and then compares the strides.
    """
    return x.clone(memory_format=torch.contiguous_format)


def conjugated(x: Tensor) -> Tensor:
    """Return the conjugate as a new tensor: a loop cannot carry a lazy conjugate."""
    return x.conj_physical() if x.is_complex() else x


def conjugate_transposed(matrix: Tensor) -> Tensor:
    """Return the conjugate transpose of each matrix."""
    return conjugated(matrix).mT


def place(k: Step) -> Tensor:
    """Return the index of a step as a vector with one element."""
    return k.reshape(1) if isinstance(k, Tensor) else torch.full((1,), k)


def column(matrix: Tensor, k: Step) -> Tensor:
    """Return column `k` of each matrix."""
    return matrix.index_select(-1, place(k)).squeeze(-1)


def row(matrix: Tensor, k: Step) -> Tensor:
    """Return row `k` of each matrix."""
    return matrix.index_select(-2, place(k)).squeeze(-2)
