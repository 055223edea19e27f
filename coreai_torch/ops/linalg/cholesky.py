"""Lower Cholesky factorization, and triangular systems by substitution.

Torch raises for matrices that are not positive definite. A converted program does not: it returns
the square root of a negative number (NaN), and `info` if the op returns it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import c64, f16, f32
from ...torch_compat import aten
from .._lib.loops import Step, column, conjugate_transposed, conjugated, place, static_size, steps

_POSITIVE = (4.0, 1.0, -0.5, 1.0, 5.0, 0.7, -0.5, 0.7, 3.0)  # three rows
# Six rows: more than the number of steps that are unrolled.
_LARGER = tuple(6.0 if i % 7 == 0 else 0.1 * ((i // 6) * (i % 6)) - 1 for i in range(36))


def substitute(matrix: Tensor, rhs: Tensor, upper: bool, unit: bool) -> Tensor:
    """Solve `matrix @ x = rhs` for a triangular matrix; the other triangle is not read.

    A step computes one row from those that are known; the others are zero in `found`.
    """
    rows = matrix.shape[-1]
    lead = torch.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    strict = matrix.triu(1) if upper else matrix.tril(-1)
    pivots = matrix.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)

    def body(k: Step, found: Tensor, rhs: Tensor, strict: Tensor, pivots: Tensor) -> list[Tensor]:
        at = place(rows - 1 - k if upper else k)
        known = rhs.index_select(-2, at) - strict.index_select(-2, at) @ found
        if not unit:
            known = known / pivots.index_select(-2, at)
        return [found.index_copy(-2, at, known)]

    found = rhs.new_zeros((*lead, rows, rhs.shape[-1]))
    return steps(rows, body, [found], [rhs, strict, pivots])[0]


def first_failure(bad: Tensor) -> Tensor:
    """Return the first index where `bad` is true, counted from 1, or 0."""
    rows = bad.shape[-1]
    if rows == 0:
        return bad.new_zeros(bad.shape[:-1], dtype=torch.int32)
    at = torch.where(bad, torch.arange(1, rows + 1), rows + 1).amin(-1)
    return torch.where(at > rows, 0, at).to(torch.int32)


_TRIANGULAR = [
    case(f32(3, 3, fixed=True, low=1), f32(3, 2, fixed=True), upper=True),
    case(f32(2, 3, 3, fixed=True, low=1), f32(3, 2, fixed=True), upper=False),
    case(
        f32(3, 3, fixed=True, low=1),
        f32(2, 3, fixed=True),
        upper=True,
        left=False,
        unitriangular=True,
    ),
    case(f32(6, 6, fixed=True, values=_LARGER), f32(2, 6, 2, fixed=True), upper=True),
    case(f32(2, 6, 6, fixed=True, values=_LARGER), f32(6, 2, fixed=True), upper=False),
    case(f32(3, 3, fixed=True, low=1), f16(3, 2, fixed=True), upper=True),
]


@decomposes(aten.linalg_solve_triangular.default, cases=_TRIANGULAR)
def linalg_solve_triangular(
    matrix: Tensor, rhs: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    static_size("linalg.solve_triangular", matrix, -1)
    rhs = rhs.to(matrix.dtype)
    if left:
        return substitute(matrix, rhs, upper, unitriangular)
    return substitute(matrix.mT, rhs.mT, not upper, unitriangular).mT


@decomposes(
    aten.triangular_solve.default,
    cases=[
        case(f32(3, 2, fixed=True), f32(3, 3, fixed=True, low=1)),
        case(f32(3, 2, fixed=True), f32(2, 3, 3, fixed=True, low=1), False, True),
        case(f32(3, 2, fixed=True), f32(3, 3, fixed=True, low=1), unitriangular=True),
    ],
)
def triangular_solve(
    rhs: Tensor,
    matrix: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    lead = torch.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    triangle, is_upper = (matrix.mT, not upper) if transpose else (matrix, upper)
    solved = linalg_solve_triangular(triangle, rhs, upper=is_upper, unitriangular=unitriangular)
    return solved, matrix.expand(*lead, *matrix.shape[-2:]).clone()


_HERMITIAN = c64(2, 2, fixed=True, values=(3.0, 1 - 2j, 1 + 2j, 4.0))
_FACTORED = [
    case(f32(3, 3, fixed=True, values=_POSITIVE)),
    case(f32(2, 3, 3, fixed=True, values=_POSITIVE), upper=True),
    case(f32(2, 6, 6, fixed=True, values=_LARGER)),
    case(f32(6, 6, fixed=True, values=_LARGER), upper=True),
    *(case(_HERMITIAN, upper=upper) for upper in (False, True)),
]


def _real(x: Tensor) -> Tensor:
    return torch.real(x) if x.is_complex() else x


def _lower_factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower factor, and the pivots before their square roots.

    A step writes one column and subtracts its products from all elements. Elements of finished rows
    and columns are not read again.
    """
    rows = static_size("linalg.cholesky", matrix, -1)

    def body(k: Step, matrix: Tensor, found: Tensor, pivots: Tensor) -> list[Tensor]:
        given, at = column(matrix, k), place(k)
        pivot = _real(given.index_select(-1, at))
        factor = given / pivot.sqrt()
        return [
            matrix - factor.unsqueeze(-1) * conjugated(factor).unsqueeze(-2),
            found.index_copy(-2, at, factor.unsqueeze(-2)),
            pivots.index_copy(-1, at, pivot),
        ]

    pivots = torch.zeros_like(_real(matrix[..., 0])) if rows else _real(matrix.sum(-1))
    _, found, pivots = steps(rows, body, [matrix, torch.zeros_like(matrix), pivots])
    return found.mT.tril(), pivots


@decomposes(
    aten.linalg_cholesky_ex.default,
    cases=[*_FACTORED, case(f32(3, 3, fixed=True, values=_POSITIVE), check_errors=True)],
)
def linalg_cholesky_ex(
    matrix: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    factor, pivots = _lower_factor(conjugate_transposed(matrix) if upper else matrix)
    return conjugate_transposed(factor) if upper else factor, first_failure(~(pivots > 0))


@decomposes(aten.linalg_cholesky.default, cases=_FACTORED[:2])
def linalg_cholesky(matrix: Tensor, *, upper: bool = False) -> Tensor:
    return linalg_cholesky_ex(matrix, upper=upper)[0]


@decomposes(
    aten.cholesky.default,
    cases=[case(f32(3, 3, fixed=True, values=_POSITIVE), upper) for upper in (False, True)],
)
def cholesky(matrix: Tensor, upper: bool = False) -> Tensor:
    return linalg_cholesky_ex(matrix, upper=upper)[0]


@decomposes(
    aten.cholesky_solve.default,
    cases=[
        case(f32(3, 2, fixed=True), f32(3, 3, fixed=True, low=1)),
        case(f32(3, 2, fixed=True), f32(2, 3, 3, fixed=True, low=1), True),
        case(f32(2, 6, 1, fixed=True), f32(2, 6, 6, fixed=True, values=_LARGER)),
    ],
)
def cholesky_solve(rhs: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    static_size("cholesky_solve", factor, -1)
    lower = conjugate_transposed(factor) if upper else factor
    half = substitute(lower, rhs, False, False)
    return substitute(conjugate_transposed(lower), half, True, False)


@decomposes(
    aten.cholesky_inverse.default,
    cases=[
        case(f32(3, 3, fixed=True, low=1)),
        case(f32(2, 3, 3, fixed=True, low=1), True),
        case(f32(6, 6, fixed=True, values=_LARGER)),
    ],
)
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    identity = torch.eye(static_size("cholesky_inverse", factor, -1), dtype=factor.dtype)
    return cholesky_solve(identity, factor, upper)
