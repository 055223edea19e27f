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
from .._lib.loops import Step, column, conjugate_transposed, place, row, static_size, steps
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


def lu_factor(op: str, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return both factors in one matrix, and the pivot rows, counted from 1 as in LAPACK."""
    rows, columns = (static_size(op, matrix, axis) for axis in (-2, -1))
    count = min(rows, columns)

    def body(k: Step, matrix: Tensor, pivots: Tensor) -> list[Tensor]:
        down, across = torch.arange(rows), torch.arange(columns)
        size = torch.where(down >= k, _magnitude(column(matrix, k)), -1.0)
        chosen = size.argmax(-1, keepdim=True)
        matrix = permute_rows(matrix, _exchange(down.expand(size.shape), k, chosen))
        factors = column(matrix, k)
        pivot = factors.index_select(-1, place(k))
        factors = (factors / torch.where(pivot == 0, 1.0, pivot)).unsqueeze(-1)
        rest = matrix - factors * row(matrix, k).unsqueeze(-2)
        below = (down > k).unsqueeze(-1)
        lower = torch.where(below & (across == k), factors, matrix)
        return [
            torch.where(below & (across > k), rest, lower),
            torch.where(torch.arange(count) == k, chosen + 1, pivots),
        ]

    pivots = torch.zeros((*matrix.shape[:-2], count), dtype=torch.int64)
    matrix, pivots = steps(count, body, [matrix, pivots])
    return matrix, pivots.to(torch.int32)


def order(pivots: Tensor, rows: int) -> Tensor:
    """Return the row permutation that the pivots describe."""

    def body(k: Step, order: Tensor, pivots: Tensor) -> list[Tensor]:
        return [_exchange(order, k, pivots.index_select(-1, place(k)) - 1)]

    first = torch.arange(rows).expand(*pivots.shape[:-1], rows)
    return steps(pivots.shape[-1], body, [first], [pivots.to(torch.int64)])[0]


def solve_factored(factors: Tensor, pivots: Tensor, rhs: Tensor) -> Tensor:
    """Solve for `rhs` with the LU factors and pivots."""
    lead = torch.broadcast_shapes(factors.shape[:-2], rhs.shape[:-2])
    rhs = rhs.expand(*lead, *rhs.shape[-2:])
    order_of_rows = order(pivots, factors.shape[-1]).expand(*lead, factors.shape[-1])
    rhs = substitute(factors, permute_rows(rhs, order_of_rows), False, True)
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
    cases=[*_MATRICES, case(f32(3, 3, fixed=True), check_errors=True)],
)
def linalg_lu_factor_ex(
    matrix: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    _require_pivot("linalg.lu_factor", pivot)
    factors, pivots = lu_factor("linalg.lu_factor", matrix)
    return factors, pivots, first_failure(factors.diagonal(dim1=-2, dim2=-1) == 0)


@decomposes(aten.linalg_lu_factor.default, cases=_MATRICES[:1])
def linalg_lu_factor(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    factors, pivots, _ = linalg_lu_factor_ex(matrix, pivot=pivot)
    return factors, pivots


@decomposes(
    aten._lu_with_info.default,
    cases=[case(f32(3, 3, fixed=True), True, False)],
)
def lu_with_info(
    matrix: Tensor, pivot: bool = True, check_errors: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots, info = linalg_lu_factor_ex(matrix, pivot=pivot)
    return factors, pivots, info


_PIVOTS = i32(3, fixed=True, values=(2, 3, 3))


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
    rows, columns = (static_size("lu_unpack", factors, axis) for axis in (-2, -1))
    count = min(rows, columns)
    empty = factors.new_empty(0)
    permutation, lower, upper = empty, empty, empty
    if unpack_pivots:
        row_order = order(pivots, rows).unsqueeze(-2)
        permutation = (row_order == torch.arange(rows).unsqueeze(-1)).to(factors.dtype)
    if unpack_data:
        identity = torch.eye(rows, count, dtype=factors.dtype)
        lower = factors[..., :count].tril(-1) + identity
        upper = factors[..., :count, :].triu()
    return permutation, lower, upper


@decomposes(aten.linalg_lu.default, cases=_MATRICES[1:3])
def linalg_lu(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    _require_pivot("linalg.lu", pivot)
    permutation, lower, upper = lu_unpack(*lu_factor("linalg.lu", matrix))
    return permutation, lower, upper


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
        return solve_factored(factors, pivots, rhs)
    solved = substitute(conjugate_transposed(factors), rhs, False, False)
    solved = substitute(conjugate_transposed(factors), solved, True, True)
    inverse_order = order(pivots, rows).argsort(-1)
    return permute_rows(solved, inverse_order.expand(*solved.shape[:-2], rows))


@decomposes(aten.lu_solve.default, cases=[case(f32(3, 2, fixed=True), _FACTORS, _PIVOTS)])
def lu_solve(rhs: Tensor, factors: Tensor, pivots: Tensor) -> Tensor:
    return linalg_lu_solve(factors, pivots, rhs)
