"""Lower matrix_exp, matrix_power, tensorinv and tensorsolve.

matrix_exp scales the matrix, sums the Taylor series, and squares the result.
"""

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

_TERMS, _MAX_NORM = 18, 3.01  # this many Taylor terms are accurate in float32 up to this norm


def _square_repeatedly(matrix: Tensor, times: Tensor) -> Tensor:
    """Square each matrix as often as `times` says."""

    def continues(k: Tensor, matrix: Tensor, times: Tensor) -> Tensor:
        return k < times.amax()

    def body(k: Tensor, matrix: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        return k + 1, torch.where(k < times, matrix @ matrix, matrix)

    start = torch.zeros((), dtype=torch.int64)
    return while_loop_op(continues, body, (start, matrix.clone()), (times,))[1]


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
    given = matrix.to(torch.float32)  # in float16 torch returns NaN, even for small matrices
    norm = given.abs().sum(-2).amax(-1)[..., None, None]
    # The ceiling of -inf is NaN: a matrix of zeros needs no squaring.
    times = (norm / _MAX_NORM).clamp(min=1).log2().ceil().clamp(max=128)

    def body(k: Step, result: Tensor, scaled: Tensor) -> list[Tensor]:
        return [torch.eye(rows) + scaled @ result / (_TERMS - k)]

    identity = torch.eye(rows).expand(given.shape)
    result = steps(_TERMS, body, [identity], [given * (-times).exp2()])[0]
    return _square_repeatedly(result, times.to(torch.int64)).to(matrix.dtype)


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
    n, result = abs(n), None
    while True:
        if n % 2:
            result = square if result is None else result @ square
        n //= 2
        if not n:
            return result.clone() if result is matrix else result
        square = square @ square


@decomposes(
    aten.linalg_tensorinv.default,
    cases=[case(f32(2, 3, 6, fixed=True)), case(f32(4, 2, 2, fixed=True), ind=1)],
)
def linalg_tensorinv(x: Tensor, ind: int = 2) -> Tensor:
    count = math.prod(x.shape[:ind])
    result = inverse(x.reshape(count, -1))
    return result.reshape(*x.shape[ind:], *x.shape[:ind])


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
