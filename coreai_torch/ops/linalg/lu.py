"""Lower LU factorization with partial pivoting, and solutions from its factors.

Every column is one step, so the matrix must have static sizes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConversionError
from ...lowering import case, decomposes
from ...lowering.cases import c64, f32, i32
from ...torch_compat import aten
from .._lib.loops import Step, column, conjugate_transposed, place, static_size, steps
from .cholesky import first_failure, substitute


def _exchange(order: Tensor, k: Step, other: Tensor) -> Tensor:
    """Exchange the elements `k` and `other` (one per vector)."""
    positions = torch.arange(order.shape[-1])
    here, there = order.index_select(-1, place(k)), order.gather(-1, other)
    return torch.where(positions == k, there, torch.where(positions == other, here, order))


def permute_rows(matrix: Tensor, order: Tensor) -> Tensor:
    """Permute the rows of each matrix."""
    return matrix.gather(-2, order.unsqueeze(-1).expand(matrix.shape))


def _magnitude(x: Tensor) -> Tensor:
    """Return the magnitude that LAPACK compares: |re| + |im| for complex numbers."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def lu_factor(op: str, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return both factors in one matrix, the pivot rows counted from 1, and the row permutation.

    A step writes a column of the lower and a row of the upper factor, and subtracts their products
    from all elements. Elements of finished rows and columns are not read again. Rows move once, at
    the end.
    """
    rows, columns = (static_size(op, matrix, axis) for axis in (-2, -1))
    count = min(rows, columns)

    def body(
        k: Step, matrix: Tensor, order: Tensor, lower: Tensor, upper: Tensor, pivots: Tensor
    ) -> list[Tensor]:
        at, given = place(k), column(matrix, k)
        size = _magnitude(given).gather(-1, order)
        chosen = torch.where(torch.arange(rows) >= k, size, -1.0).argmax(-1, keepdim=True)
        order = _exchange(order, k, chosen)
        pivot_at = order.index_select(-1, at)
        pivot = given.gather(-1, pivot_at)
        factors = given / torch.where(pivot == 0, 1.0, pivot)
        pivot_row = matrix.gather(-2, pivot_at.unsqueeze(-1).expand(*pivot_at.shape, columns))
        return [
            matrix - factors.unsqueeze(-1) * pivot_row,
            order,
            lower.index_copy(-2, at, factors.unsqueeze(-2)),
            upper.index_copy(-2, at, pivot_row),
            pivots.index_copy(-1, at, (chosen + 1).to(torch.int32)),
        ]

    lead, order = matrix.shape[:-2], torch.arange(rows).expand(matrix.shape[:-1])
    pivots = torch.zeros((*lead, count), dtype=torch.int32)
    if not count:
        return matrix, pivots, order
    lower, upper = matrix.new_zeros((*lead, count, rows)), matrix.new_zeros((*lead, count, columns))
    _, order, lower, upper, pivots = steps(count, body, [matrix, order, lower, upper, pivots])
    lower = permute_rows(lower.mT, order)
    is_lower = torch.arange(count).unsqueeze(-1) > torch.arange(count)
    square = torch.where(is_lower, lower[..., :count, :], upper[..., :count])
    if count < rows:
        return torch.cat([square, lower[..., count:, :]], -2), pivots, order
    parts = [square, upper[..., count:]] if count < columns else [square]
    return torch.cat(parts, -1), pivots, order


def order(pivots: Tensor, rows: int) -> Tensor:
    """Return the row permutation that the pivots describe."""

    def body(k: Step, order: Tensor, pivots: Tensor) -> list[Tensor]:
        return [_exchange(order, k, pivots.index_select(-1, place(k)) - 1)]

    first = torch.arange(rows).expand(*pivots.shape[:-1], rows)
    return steps(pivots.shape[-1], body, [first], [pivots.to(torch.int64)])[0]


def solve_factored(factors: Tensor, permutation: Tensor, rhs: Tensor) -> Tensor:
    """Solve for `rhs` with the LU factors and the row permutation."""
    lead = torch.broadcast_shapes(factors.shape[:-2], rhs.shape[:-2])
    rhs = rhs.expand(*lead, *rhs.shape[-2:])
    rhs = permute_rows(rhs, permutation.expand(*lead, factors.shape[-1]))
    rhs = substitute(factors, rhs, False, True)
    return substitute(factors, rhs, True, False)


_MATRICES = [
    case(f32(3, 3, fixed=True)),
    case(f32(2, 4, 3, fixed=True)),
    case(f32(3, 6, fixed=True)),
    case(f32(2, 7, 6, fixed=True)),
    case(f32(2, 2, fixed=True, values=(0.0, 2.0, 3.0, 1.0))),
    case(c64(5, 5, fixed=True)),
]


def _require_pivot(op: str, pivot: bool) -> None:
    if not pivot:
        raise ConversionError(
            f"{op}: pivot=False is not supported, as in torch on a CPU\n  try   pass pivot=True"
        )


@decomposes(
    aten.linalg_lu_factor_ex.default,
    cases=[
        *_MATRICES,
        case(f32(3, 3, fixed=True), check_errors=True),
        case(f32(0, 66, fixed=True)),
    ],
)
def linalg_lu_factor_ex(
    matrix: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    _require_pivot("linalg.lu_factor", pivot)
    factors, pivots, _ = lu_factor("linalg.lu_factor", matrix)
    return factors, pivots, first_failure(factors.diagonal(dim1=-2, dim2=-1) == 0)


@decomposes(aten.linalg_lu_factor.default, cases=_MATRICES[:1])
def linalg_lu_factor(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    factors, pivots, _ = linalg_lu_factor_ex(matrix, pivot=pivot)
    return factors, pivots


@decomposes(aten._lu_with_info.default, cases=[case(f32(3, 3, fixed=True), True, False)])
def lu_with_info(
    matrix: Tensor, pivot: bool = True, check_errors: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots, info = linalg_lu_factor_ex(matrix, pivot=pivot)
    return factors, pivots, info


_PIVOTS = i32(3, fixed=True, values=(2, 3, 3))


def _permutation_matrix(permutation: Tensor, dtype: torch.dtype) -> Tensor:
    rows = permutation.shape[-1]
    return (permutation.unsqueeze(-2) == torch.arange(rows).unsqueeze(-1)).to(dtype)


def _triangles(op: str, factors: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = (static_size(op, factors, axis) for axis in (-2, -1))
    count = min(rows, columns)
    identity = torch.eye(rows, count, dtype=factors.dtype)
    return factors[..., :count].tril(-1) + identity, factors[..., :count, :].triu()


@decomposes(
    aten.lu_unpack.default,
    cases=[
        case(f32(3, 3, fixed=True), _PIVOTS),
        case(f32(4, 3, fixed=True), _PIVOTS),
        case(f32(2, 3, 5, fixed=True), i32(2, 3, fixed=True, values=(2, 3, 3, 3, 2, 3))),
        case(f32(6, 6, fixed=True), i32(6, fixed=True, values=(4, 2, 6, 6, 6, 6))),
    ],
)
def lu_unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    rows = static_size("lu_unpack", factors, -2)
    empty = factors.new_empty(0)
    permutation, lower, upper = empty, empty, empty
    if unpack_pivots:
        permutation = _permutation_matrix(order(pivots, rows), factors.dtype)
    if unpack_data:
        lower, upper = _triangles("lu_unpack", factors)
    return permutation, lower, upper


@decomposes(aten.linalg_lu.default, cases=_MATRICES[1:3])
def linalg_lu(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    _require_pivot("linalg.lu", pivot)
    factors, _, permutation = lu_factor("linalg.lu", matrix)
    return _permutation_matrix(permutation, matrix.dtype), *_triangles("linalg.lu", factors)


_FACTORS = f32(3, 3, fixed=True, low=1)
_COMPLEX = c64(3, 3, fixed=True, low=1)


@decomposes(
    aten.linalg_lu_solve.default,
    cases=[
        case(_FACTORS, _PIVOTS, f32(3, 2, fixed=True)),
        case(_FACTORS, _PIVOTS, f32(3, 2, fixed=True), adjoint=True),
        case(_FACTORS, _PIVOTS, f32(2, 3, fixed=True), left=False),
        case(_FACTORS, _PIVOTS, f32(2, 4, 3, fixed=True), left=False, adjoint=True),
        *(
            case(_COMPLEX, _PIVOTS, c64(3, 3, fixed=True), left=left, adjoint=True)
            for left in (False, True)
        ),
        case(
            f32(2, 3, 3, fixed=True, low=1),
            i32(2, 3, fixed=True, values=(2, 3, 3, 3, 2, 3)),
            f32(3, 1, fixed=True),
        ),
    ],
)
def linalg_lu_solve(
    factors: Tensor, pivots: Tensor, rhs: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    rows = static_size("linalg.lu_solve", factors, -1)
    if not left:
        adjoint_rhs = conjugate_transposed(rhs)
        return conjugate_transposed(
            linalg_lu_solve(factors, pivots, adjoint_rhs, adjoint=not adjoint)
        )
    if not adjoint:
        return solve_factored(factors, order(pivots, rows), rhs)
    solved = substitute(conjugate_transposed(factors), rhs, False, False)
    solved = substitute(conjugate_transposed(factors), solved, True, True)
    inverse_order = order(pivots, rows).argsort(-1)
    return permute_rows(solved, inverse_order.expand(*solved.shape[:-2], rows))


@decomposes(aten.lu_solve.default, cases=[case(f32(3, 2, fixed=True), _FACTORS, _PIVOTS)])
def lu_solve(rhs: Tensor, factors: Tensor, pivots: Tensor) -> Tensor:
    return linalg_lu_solve(factors, pivots, rhs)
