"""Powers and the exponential of a matrix, and systems whose unknowns are tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten, while_loop_op
from .._lib.loops import Step, only_real, static_size, steps
from .solve_det import inverse, linalg_solve

_TERMS, _REACH = 18, 3.01  # so many terms of the series do up to this norm, in float32


def _squared(matrix: Tensor, times: Tensor) -> Tensor:
    """Each matrix times itself, as many times as it has a number for."""

    def going_on(k: Tensor, matrix: Tensor, times: Tensor) -> Tensor:
        return k < times.amax()

    def body(k: Tensor, matrix: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        return k + 1, torch.where(k < times, matrix @ matrix, matrix)

    start = torch.zeros((), dtype=torch.int64)
    return while_loop_op(going_on, body, (start, matrix.clone()), (times,))[1]


@decomposes(
    aten.linalg_matrix_exp.default,
    cases=[
        case(f32(3, 3, fixed=True)),
        case(f32(2, 3, 3, fixed=True, low=-5, high=5)),
        case(f32(2, 2, fixed=True, values=(0.0,))),
    ],
)
def linalg_matrix_exp(matrix: Tensor) -> Tensor:
    only_real("linalg.matrix_exp", matrix)
    rows = static_size("linalg.matrix_exp", matrix, -1)
    if matrix.numel() == 0:
        return matrix.clone()
    given = matrix.to(torch.float32)  # in halves torch's own gives NaN, even for small matrices
    norm = given.abs().sum(-2).amax(-1)[..., None, None]
    times = (norm / _REACH).log2().ceil().clamp(0, 128)

    def body(k: Step, found: Tensor, scaled: Tensor) -> list[Tensor]:
        return [torch.eye(rows) + scaled @ found / (_TERMS - k)]

    whole = torch.eye(rows).expand(given.shape)
    found = steps(_TERMS, body, [whole], [given * (-times).exp2()])[0]
    return _squared(found, times.to(torch.int64)).to(matrix.dtype)


_MATRIX = f32(2, 2, fixed=True, values=(2.0, 1.0, 0.5, -1.0))


@decomposes(
    aten.linalg_matrix_power.default,
    aten.matrix_power.default,
    cases=[
        *(case(_MATRIX, n) for n in (0, 1, 2, 3, 7, -1, -3)),
        case(f32(2, 2, 2, fixed=True, values=(2.0, 1.0, 0.5, -1.0)), -2),
    ],
)
def linalg_matrix_power(matrix: Tensor, n: int) -> Tensor:
    if n == 0:
        return torch.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape).clone()
    square = matrix if n > 0 else inverse(matrix)
    n, found = abs(n), None
    while True:
        if n % 2:
            found = square if found is None else found @ square
        n //= 2
        if not n:
            return found.clone() if found is matrix else found
        square = square @ square


@decomposes(
    aten.linalg_tensorinv.default,
    cases=[
        case(f32(2, 3, 6, fixed=True)),
        case(f32(4, 2, 2, fixed=True), ind=1),
    ],
)
def linalg_tensorinv(x: Tensor, ind: int = 2) -> Tensor:
    count = math.prod(x.shape[:ind])
    found = inverse(x.reshape(count, -1))
    return found.reshape(*x.shape[ind:], *x.shape[:ind])


@decomposes(
    aten.linalg_tensorsolve.default,
    cases=[
        case(f32(2, 2, 4, fixed=True), f32(2, 2, fixed=True)),
        case(f32(4, 2, 2, fixed=True), f32(2, 2, fixed=True), dims=[0]),
    ],
)
def linalg_tensorsolve(x: Tensor, other: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    if dims is not None:
        x = x.movedim(list(dims), list(range(x.dim() - len(dims), x.dim())))
    sizes = x.shape[other.dim() :]
    count = math.prod(sizes)
    return linalg_solve(x.reshape(count, count), other.flatten()).reshape(sizes)
