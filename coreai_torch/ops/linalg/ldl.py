"""Lower ldl_factor and ldl_solve with Bunch-Kaufman pivoting (1x1 and 2x2 pivots).

The matrices of a batch may take different steps: each has its own position, and does nothing once
it is finished.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32, i32
from ...torch_compat import aten
from .._lib.loops import Step, only_real, static_size, steps

# Bunch-Kaufman alpha: the share of the column's maximum that a pivot must reach
_ALPHA = (1 + math.sqrt(17)) / 8


def _column(matrix: Tensor, at: Tensor) -> Tensor:
    """Return the column of each matrix at its own position; `at` has a trailing axis of size 1."""
    last = matrix.shape[-1] - 1
    index = at.clamp(0, last).unsqueeze(-2).expand(*matrix.shape[:-1], 1)
    return matrix.gather(-1, index).squeeze(-1)


def _element(vector: Tensor, at: Tensor) -> Tensor:
    return vector.gather(-1, at.clamp(0, vector.shape[-1] - 1))


def _exchange(rows: int, one: Tensor, other: Tensor) -> Tensor:
    """Return the permutation that exchanges two positions."""
    positions = torch.arange(rows)
    return torch.where(positions == one, other, torch.where(positions == other, one, positions))


def _choose_pivot(matrix: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pivot row, and whether it forms a 2x2 pivot with row `k`."""
    rows = matrix.shape[-1]
    positions = torch.arange(rows)
    column = _column(matrix, k)
    own = _element(column, k).abs()
    below = torch.where(positions > k, column.abs(), -1.0)
    largest = below.amax(-1, keepdim=True).clamp(min=0.0)
    row = torch.where(largest > 0, below.argmax(-1, keepdim=True), k)
    other = _column(matrix, row)
    row_maximum = torch.where((positions >= k) & (positions != row), other.abs(), 0.0)
    row_maximum = row_maximum.amax(-1, keepdim=True)
    keeps_row = own >= _ALPHA * largest
    share = largest / torch.where(row_maximum > 0, row_maximum, 1.0)  # largest ** 2 may underflow
    keeps_row = keeps_row | (own >= _ALPHA * largest * share)
    is_single = keeps_row | (_element(other, row).abs() >= _ALPHA * row_maximum)
    return torch.where(keeps_row, k, row), ~is_single


def _single(matrix: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor's column for a 1x1 pivot, and the updated matrix."""
    column = _column(matrix, k)
    pivot = _element(column, k)
    factor = column / torch.where(pivot == 0, 1.0, pivot)
    return factor, matrix - factor.unsqueeze(-1) * column.unsqueeze(-2)


def _pair(matrix: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the factor's two columns for a 2x2 pivot, and the updated matrix."""
    first, second = _column(matrix, k), _column(matrix, k + 1)
    across = _element(first, k + 1)
    across = torch.where(across == 0, 1.0, across)
    one, two = _element(second, k + 1) / across, _element(first, k) / across
    scale = 1 / (one * two - 1) / across
    left, right = scale * (one * first - second), scale * (two * second - first)
    update = left.unsqueeze(-1) * first.unsqueeze(-2) + right.unsqueeze(-1) * second.unsqueeze(-2)
    return left, right, matrix - update


def _step(
    _: Step, matrix: Tensor, found: Tensor, pivots: Tensor, k: Tensor, info: Tensor
) -> list[Tensor]:
    rows = matrix.shape[-1]
    positions = torch.arange(rows)
    row, paired = _choose_pivot(matrix, k)
    order = _exchange(rows, torch.where(paired, k + 1, k), row)
    matrix = matrix.gather(-2, order.unsqueeze(-1).expand(matrix.shape))
    matrix = matrix.gather(-1, order.unsqueeze(-2).expand(matrix.shape))
    factor, remainder = _single(matrix, k)
    left, right, rest_of_pair = _pair(matrix, k)
    paired_matrix = paired.unsqueeze(-1)
    own, next_ = _column(matrix, k), _column(matrix, k + 1)
    after = torch.where(paired, k + 1, k)
    column = torch.where(positions > after, torch.where(paired, left, factor), own)
    second = torch.where(positions > after, right, next_)
    across = positions.unsqueeze(0)
    at, beyond = k.unsqueeze(-1), after.unsqueeze(-1)
    found = torch.where(across == at, column.unsqueeze(-1), found)
    found = torch.where(paired_matrix & (across == at + 1), second.unsqueeze(-1), found)
    remaining = (across > beyond) & (positions.unsqueeze(-1) > beyond)
    matrix = torch.where(remaining, torch.where(paired_matrix, rest_of_pair, remainder), matrix)
    number = torch.where(paired, -(row + 1), row + 1)
    pivots = torch.where((positions == k) | (paired & (positions == k + 1)), number, pivots)
    is_zero_column = (own.abs() * (positions >= k)).amax(-1, keepdim=True) == 0
    bad = is_zero_column & (info == 0) & (k < rows)
    return [matrix, found, pivots, after + 1, torch.where(bad, k + 1, info)]


_SYMMETRIC = (2.0, 1.0, -3.0, 0.5, 1.0, 0.1, 2.0, 1.5, -3.0, 2.0, 0.2, 4.0, 0.5, 1.5, 4.0, -1.0)
_MATRICES = [
    case(f32(4, 4, fixed=True, values=_SYMMETRIC)),
    case(f32(2, 5, 5, fixed=True)),
    case(f32(2, 2, fixed=True, values=(0.0, 1.0, 1.0, 0.0))),
    case(f32(1, 1, fixed=True)),
    case(f32(4, 4, fixed=True, values=tuple(1e-30 * v for v in _SYMMETRIC))),
]


@decomposes(
    aten.linalg_ldl_factor_ex.default,
    cases=[*_MATRICES, case(_MATRICES[0].args[0], hermitian=True, check_errors=True)],
)
def linalg_ldl_factor_ex(
    matrix: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    only_real("linalg.ldl_factor", matrix)
    rows = static_size("linalg.ldl_factor", matrix, -1)
    lead = matrix.shape[:-2]
    pivot_numbers = torch.zeros((*lead, rows), dtype=torch.int64)
    start = torch.zeros((*lead, 1), dtype=torch.int64)
    if rows == 0:
        return (
            matrix.clone(),
            pivot_numbers.to(torch.int32),
            pivot_numbers.new_zeros(lead).to(torch.int32),
        )
    symmetric = matrix.tril() + matrix.tril(-1).mT
    state = [symmetric, torch.zeros_like(matrix), pivot_numbers, start, start]
    _, found, pivots, _, info = steps(rows, _step, state)
    return found.tril(), pivots.to(torch.int32), info.squeeze(-1).to(torch.int32)


@decomposes(aten.linalg_ldl_factor.default, cases=_MATRICES)
def linalg_ldl_factor(matrix: Tensor, *, hermitian: bool = False) -> tuple[Tensor, Tensor]:
    factors, pivots, _ = linalg_ldl_factor_ex(matrix, hermitian=hermitian)
    return factors, pivots


def _row(rhs: Tensor, at: Tensor) -> Tensor:
    index = at.clamp(0, rhs.shape[-2] - 1).unsqueeze(-1)
    return rhs.gather(-2, index.expand(*rhs.shape[:-2], 1, rhs.shape[-1]))


def _forward(_: Step, rhs: Tensor, k: Tensor, factors: Tensor, pivots: Tensor) -> list[Tensor]:
    """Do one step of forward substitution through the factor and the pivots."""
    rows = factors.shape[-1]
    positions = torch.arange(rows).unsqueeze(-1)
    number = _element(pivots, k)
    paired = number < 0
    after = torch.where(paired, k + 1, k)
    order = _exchange(rows, after, torch.where(k < rows, number.abs() - 1, after))
    rhs = rhs.gather(-2, order.unsqueeze(-1).expand(rhs.shape))
    first, second = _column(factors, k), _column(factors, k + 1)
    known, next_ = _row(rhs, k), _row(rhs, k + 1)
    paired_matrix, beyond = paired.unsqueeze(-1), after.unsqueeze(-1)
    update = first.unsqueeze(-1) * known
    update = torch.where(paired_matrix, update + second.unsqueeze(-1) * next_, update)
    remainder = torch.where(positions > beyond, rhs - update, rhs)
    single = known / _element(first, k).unsqueeze(-1)
    across = _element(first, k + 1).unsqueeze(-1)
    across = torch.where(paired_matrix, across, 1.0)
    one, two = (_element(c, k + i).unsqueeze(-1) / across for i, c in enumerate((first, second)))
    over = one * two - 1
    up, down = (two * known - next_) / across / over, (one * next_ - known) / across / over
    at = k.unsqueeze(-1)
    remainder = torch.where(positions == at, torch.where(paired_matrix, up, single), remainder)
    remainder = torch.where(paired_matrix & (positions == at + 1), down, remainder)
    return [torch.where(at < rows, remainder, rhs), after + 1]


def _backward(_: Step, rhs: Tensor, k: Tensor, factors: Tensor, pivots: Tensor) -> list[Tensor]:
    """Do one step of back substitution through the transposed factor."""
    rows = factors.shape[-1]
    positions = torch.arange(rows).unsqueeze(-1)
    number = _element(pivots, k)
    paired = (number < 0) & (k > 0)
    paired_matrix, at = paired.unsqueeze(-1), k.unsqueeze(-1)
    below = torch.where(positions > at, rhs, 0.0)
    lower, upper = (
        (_column(factors, k - i).unsqueeze(-1) * below).sum(-2, keepdim=True) for i in range(2)
    )
    found = torch.where(positions == at, rhs - lower, rhs)
    found = torch.where(paired_matrix & (positions == at - 1), found - upper, found)
    order = _exchange(rows, k, torch.where(k >= 0, number.abs() - 1, k))
    found = found.gather(-2, order.unsqueeze(-1).expand(found.shape))
    return [torch.where(at >= 0, found, rhs), torch.where(paired, k - 2, k - 1)]


@decomposes(
    aten.linalg_ldl_solve.default,
    cases=[
        case(f32(3, 3, fixed=True, low=1), i32(3, fixed=True, values=pivots), f32(3, 2, fixed=True))
        for pivots in ((2, 3, 3), (1, -3, -3), (-3, -3, 3))
    ],
)
def linalg_ldl_solve(
    factors: Tensor, pivots: Tensor, rhs: Tensor, *, hermitian: bool = False
) -> Tensor:
    only_real("linalg.ldl_solve", factors, rhs)
    rows = static_size("linalg.ldl_solve", factors, -1)
    lead = torch.broadcast_shapes(factors.shape[:-2], rhs.shape[:-2])
    rhs = rhs.expand(*lead, *rhs.shape[-2:])
    if rows == 0:
        return rhs.clone()
    given = factors.expand(*lead, rows, rows), pivots.to(torch.int64).expand(*lead, rows)
    start = torch.zeros((*lead, 1), dtype=torch.int64)
    rhs, _ = steps(rows, _forward, [rhs, start], given)
    return steps(rows, _backward, [rhs, start + (rows - 1)], given)[0]
