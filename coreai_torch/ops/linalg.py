"""Determinants, inverses and solutions of small systems, by elimination written out in torch.

Every column is one step, so the number of rows must be known. Torch also checks its results and
raises for singular matrices; a converted program raises nothing: it returns what the division
by a zero pivot gives, and `info` where that was asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import ConversionError
from ..lowering import case, decomposes
from ..lowering.cases import bf16, f16, f32, i64

aten = torch.ops.aten
_MOST_ROWS = 32  # about a dozen ops each


def _order(op: str, matrix: Tensor) -> int:
    """The number of rows, if it is one that can be written out."""
    rows: Any = matrix.shape[-1]
    if not isinstance(rows, int) or rows > _MOST_ROWS:
        raise ConversionError(
            f"{op}: a matrix of {rows} rows\n  try   a number of rows that is known when "
            f"exporting and at most {_MOST_ROWS}: elimination is written out step by step"
        )
    if matrix.is_complex():
        raise ConversionError(f"{op}: a complex matrix\n  try   its real and imaginary parts")
    return rows


def _swapped(matrix: Tensor, k: int, other: Tensor, places: Tensor) -> Tensor:
    """The rows `k` and `other` (one per matrix) exchanged."""
    order = torch.where(places == k, other, torch.where(places == other, k, places))
    return matrix.gather(-2, order.unsqueeze(-1).expand(matrix.shape))


def _factored(op: str, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Both factors in one matrix, and the row each step took, counted from 1, as LAPACK does."""
    rows = _order(op, matrix)
    places, pivots = torch.arange(rows), []
    for k in range(rows):
        size = torch.where(places >= k, matrix[..., k].abs(), -1.0)
        chosen = size.argmax(-1, keepdim=True)
        matrix = _swapped(matrix, k, chosen, places)
        pivots.append(chosen + 1)
        column, row = matrix[..., k], matrix[..., k, :]
        pivot = column[..., k].unsqueeze(-1)
        factors = torch.where(places > k, column / torch.where(pivot == 0, 1.0, pivot), 0.0)
        rest = torch.where(places > k, row, 0.0)
        matrix = matrix - factors.unsqueeze(-1) * rest.unsqueeze(-2)
        below = (places.unsqueeze(-1) > k) & (places == k)
        matrix = torch.where(below, factors.unsqueeze(-1), matrix)
    taken = torch.cat(pivots, -1) if pivots else matrix.new_empty(matrix.shape[:-1])
    return matrix, taken.to(torch.int32)


def _turned(matrix: Tensor) -> Tensor:
    """What torch factors for a determinant: it reads contiguous rows as columns."""
    return matrix.mT if matrix.is_contiguous() else matrix


def _diagonal(factors: Tensor) -> Tensor:
    return factors.diagonal(dim1=-2, dim2=-1)


def _parity(pivots: Tensor) -> Tensor:
    """1 or -1: every exchange of two rows turns the sign."""
    stayed = pivots == torch.arange(1, pivots.shape[-1] + 1)
    return torch.where(stayed, 1.0, -1.0).prod(-1)


def _info(diagonal: Tensor, bad: Tensor) -> Tensor:
    """The first bad pivot, counted from 1, or 0."""
    rows = diagonal.shape[-1]
    place = torch.where(bad, torch.arange(1, rows + 1), rows + 1).amin(-1)
    return torch.where(place > rows, 0, place).to(torch.int32)


def _substituted(matrix: Tensor, rhs: Tensor, upper: bool, unit: bool) -> Tensor:
    """`matrix @ x = rhs` for a triangular matrix, row after row."""
    rows = matrix.shape[-1]
    found: dict[int, Tensor] = {}
    for k in reversed(range(rows)) if upper else range(rows):
        rest = rhs[..., k, :]
        for j, known in found.items():
            rest = rest - matrix[..., k, j].unsqueeze(-1) * known
        found[k] = rest if unit else rest / matrix[..., k, k].unsqueeze(-1)
    return torch.stack([found[k] for k in range(rows)], -2)


def _solution(factors: Tensor, pivots: Tensor, rhs: Tensor) -> Tensor:
    rows = factors.shape[-1]
    lead = torch.broadcast_shapes(factors.shape[:-2], rhs.shape[:-2])
    rhs = rhs.expand(*lead, *rhs.shape[-2:])
    places = torch.arange(rows)
    for k in range(rows):
        taken = (pivots[..., k].to(torch.int64) - 1).unsqueeze(-1).expand(*lead, 1)
        rhs = _swapped(rhs, k, taken, places)
    return _substituted(factors, _substituted(factors, rhs, False, True), True, False)


_DET = [
    case(f32(3, 3, fixed=True)),
    case(f32(2, 4, 4, fixed=True)),
    case(f32(1, 1, fixed=True)),
    case(f32(3, 3, fixed=True, values=(0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 5.0, 0.0))),
    case(f32(2, 2, fixed=True, values=(1.0, 2.0, 2.0, 4.0))),
]


@decomposes(aten._linalg_det.default, cases=_DET[:3])
def linalg_det(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots = _factored("linalg.det", _turned(matrix))
    return _parity(pivots) * _diagonal(factors).prod(-1), factors, pivots


@decomposes(aten.linalg_det.default, cases=_DET)
def det(matrix: Tensor) -> Tensor:
    return linalg_det(matrix)[0]


@decomposes(aten._linalg_slogdet.default, cases=_DET[:4])
def linalg_slogdet(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, pivots = _factored("linalg.slogdet", _turned(matrix))
    diagonal = _diagonal(factors)
    sign = _parity(pivots) * diagonal.sign().prod(-1)
    return sign, diagonal.abs().log().sum(-1), factors, pivots


_INVERTIBLE = (4.0, 1.0, -0.5, 0.3, 0.2, 3.0, 0.7, -1.0, 5.0, 0.6, -0.8)


@decomposes(
    aten.linalg_inv_ex.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_INVERTIBLE)),
        case(f32(3, 3, fixed=True, values=_INVERTIBLE), check_errors=True),
    ],
)
def linalg_inv_ex(matrix: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    rows = _order("linalg.inv", matrix)
    factors, pivots = _factored("linalg.inv", matrix)
    diagonal = _diagonal(factors)
    whole = torch.eye(rows, dtype=matrix.dtype)
    return _solution(factors, pivots, whole), _info(diagonal, diagonal == 0)


@decomposes(
    aten.linalg_inv.default,
    aten.inverse.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_INVERTIBLE)),
        case(f32(2, 4, 4, fixed=True, values=_INVERTIBLE)),
        case(f32(2, 2, fixed=True, values=(0.0, 2.0, 3.0, 1.0))),
    ],
)
def inverse(matrix: Tensor) -> Tensor:
    return linalg_inv_ex(matrix)[0]


@decomposes(
    aten._linalg_solve_ex.default,
    cases=[
        case(
            f32(3, 3, fixed=True, values=_INVERTIBLE),
            f32(3, 2, fixed=True),
            check_errors=True,
        )
    ],
)
def linalg_solve_ex(
    matrix: Tensor, rhs: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _order("linalg.solve", matrix)
    factors, pivots = _factored("linalg.solve", matrix if left else matrix.mT)
    is_vector = rhs.dim() == 1 or (rhs.dim() == matrix.dim() - 1 and rhs.shape == matrix.shape[:-1])
    columns = rhs.unsqueeze(-1) if is_vector else rhs if left else rhs.mT
    found = _solution(factors, pivots, columns)
    result = found.squeeze(-1) if is_vector else found if left else found.mT
    diagonal = _diagonal(factors)
    return result, factors, pivots, _info(diagonal, diagonal == 0)


@decomposes(
    aten.linalg_solve.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_INVERTIBLE), f32(3, 2, fixed=True)),
        case(f32(3, 3, fixed=True, values=_INVERTIBLE), f32(3, fixed=True)),
        case(f32(2, 3, 3, fixed=True, values=_INVERTIBLE), f32(2, 3, fixed=True)),
        case(
            f32(3, 3, fixed=True, values=_INVERTIBLE),
            f32(2, 4, 3, fixed=True),
            left=False,
        ),
    ],
)
def linalg_solve(matrix: Tensor, rhs: Tensor, *, left: bool = True) -> Tensor:
    return linalg_solve_ex(matrix, rhs, left=left)[0]


@decomposes(
    aten.linalg_solve_triangular.default,
    cases=[
        case(f32(3, 3, fixed=True, low=1), f32(3, 2, fixed=True), upper=True),
        case(f32(2, 3, 3, fixed=True, low=1), f32(3, 2, fixed=True), upper=False),
        case(
            f32(3, 3, fixed=True, low=1),
            f32(2, 3, fixed=True),
            upper=True,
            left=False,
            unitriangular=True,
        ),
    ],
)
def linalg_solve_triangular(
    matrix: Tensor, rhs: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    _order("linalg.solve_triangular", matrix)
    lead = torch.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    rhs = rhs.expand(*lead, *rhs.shape[-2:])
    if left:
        return _substituted(matrix, rhs, upper, unitriangular)
    return _substituted(matrix.mT, rhs.mT, not upper, unitriangular).mT


@decomposes(
    aten.linalg_cross.default,
    cases=[
        case(f32(4, 3), f32(4, 3)),
        case(f32(3, 4), f32(3, 1), dim=0),
        case(f16(5, 3, 5, low=-9, high=9), f16(5, 3, 5, low=-9, high=9), dim=1),
        case(bf16(4, 3), bf16(1, 3)),
        case(i64(2, 3), i64(2, 3)),
    ],
)
def linalg_cross(x: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Rounded after every step, as torch does it; torch's own decomposition rounds once."""
    first, second = ([t.select(dim, i) for i in range(3)] for t in (x, other))
    parts = [
        first[(i + 1) % 3] * second[(i + 2) % 3] - first[(i + 2) % 3] * second[(i + 1) % 3]
        for i in range(3)
    ]
    return torch.stack(parts, dim)
