"""Lower Cholesky factorization, and triangular systems by substitution.

Torch raises for matrices that are not positive definite. A converted program does not: it returns
the square root of a negative number (NaN), and `info` if the op returns it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import c64, f32
from ...torch_compat import aten
from .._lib.loops import (
    Step,
    column,
    conjugate_transposed,
    conjugated,
    place,
    static_size,
    steps,
)

_POSITIVE = (4.0, 1.0, -0.5, 1.0, 5.0, 0.7, -0.5, 0.7, 3.0)  # three rows
# Six rows: more than the number of steps that are unrolled.
_LARGER = tuple(6.0 if i % 7 == 0 else 0.1 * ((i // 6) * (i % 6)) - 1 for i in range(36))


BLOCK = 64  # rows of a block: a step costs its rows, the rest is a matrix product


def blocks(rows: int) -> list[slice]:
    """Return the slices of the blocks of rows; the last may be smaller."""
    return [slice(at, min(at + BLOCK, rows)) for at in range(0, rows, BLOCK)]


def substitute(matrix: Tensor, rhs: Tensor, upper: bool, unit: bool) -> Tensor:
    """Solve `matrix @ x = rhs` for a triangular matrix; the other triangle is not read."""
    rows = matrix.shape[-1]
    if rows <= BLOCK:
        return _substitute_by_rows(matrix, rhs, upper, unit)
    solved: list[Tensor] = []
    for block in reversed(blocks(rows)) if upper else blocks(rows):
        size = block.stop - block.start
        here, later = (-size, slice(0, block.start)) if upper else (0, slice(block.stop, rows))
        known = rhs.narrow(-2, here, size)
        part = _substitute_by_rows(matrix[..., block, block], known, upper, unit)
        solved = [part, *solved] if upper else [*solved, part]
        if len(solved) < len(blocks(rows)):
            others = rhs[..., :-size, :] if upper else rhs[..., size:, :]
            rhs = others - matrix[..., later, block] @ part
    return torch.cat(solved, -2)


def _substitute_by_rows(matrix: Tensor, rhs: Tensor, upper: bool, unit: bool) -> Tensor:
    """Solve one row in each step, from the rows that are known; the others are zero in `found`."""
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
]


@decomposes(aten.linalg_solve_triangular.default, cases=_TRIANGULAR)
def linalg_solve_triangular(
    matrix: Tensor, rhs: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    static_size("linalg.solve_triangular", matrix, -1)
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
    """Return the lower factor, and the pivots before their square roots."""
    rows = static_size("linalg.cholesky", matrix, -1)
    if rows <= BLOCK:
        return _factor_by_columns(matrix, rows)
    columns: list[Tensor] = []  # of the factor, each below its first row
    pivots: list[Tensor] = []
    for block in blocks(rows):
        panel = matrix[..., block.start :, block]
        for before, known in zip(blocks(rows), columns, strict=False):
            below = known[..., block.start - before.start :, :]
            across = below[..., : block.stop - block.start, :]
            panel = panel - below @ conjugate_transposed(across)
        size = block.stop - block.start
        factor, pivot = _factor_by_columns(panel[..., :size, :], size)
        below = panel[..., size:, :]
        if block.stop < rows:
            below = conjugate_transposed(
                _substitute_by_rows(factor, conjugate_transposed(below), False, False)
            )
        columns.append(torch.cat([factor, below], -2))
        pivots.append(pivot)
    padded = [torch.nn.functional.pad(c, (0, 0, rows - c.shape[-2], 0)) for c in columns]
    return torch.cat(padded, -1), torch.cat(pivots, -1)


def _factor_by_columns(matrix: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Write one column in each step, and subtract its products from all elements.

    Elements of finished rows and columns are not read again.
    """

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
    cases=[
        *_FACTORED,
        case(f32(3, 3, fixed=True, values=_POSITIVE), check_errors=True),
    ],
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
