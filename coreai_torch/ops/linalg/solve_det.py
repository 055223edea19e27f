"""Lower det, slogdet, inv, solve and cross; all but cross use LU factorization.

Torch raises for singular matrices. A converted program does not: it returns the result of the
division by a zero pivot, and `info` if the op returns it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import bf16, c64, f16, f32, i64
from ...torch_compat import aten
from .._lib.loops import Step, place, steps
from .cholesky import first_failure
from .lu import lu_factor, solve_factored


def _transposed_like_torch(matrix: Tensor) -> Tensor:
    """Transpose as torch does for a determinant: it reads contiguous real rows as columns."""
    return matrix.mT if matrix.is_contiguous() and not matrix.is_complex() else matrix


def _diagonal(factors: Tensor) -> Tensor:
    return factors.diagonal(dim1=-2, dim2=-1)


def _product(numbers: Tensor) -> Tensor:
    if not numbers.is_complex():
        return numbers.prod(-1)

    def body(k: Step, product: Tensor, numbers: Tensor) -> list[Tensor]:
        return [product * numbers.index_select(-1, place(k))]

    one = torch.ones_like(numbers[..., :1]) if numbers.shape[-1] else numbers.sum(-1, True) + 1
    return steps(numbers.shape[-1], body, [one], [numbers])[0].squeeze(-1)


def _parity(pivots: Tensor) -> Tensor:
    """Return 1 or -1: each row exchange flips the sign."""
    unmoved = pivots == torch.arange(1, pivots.shape[-1] + 1)
    return torch.where(unmoved, 1.0, -1.0).prod(-1)


_DET = [
    case(f32(3, 3, fixed=True)),
    case(f32(2, 4, 4, fixed=True)),
    case(f32(1, 1, fixed=True)),
    case(f32(3, 3, fixed=True, values=(0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 5.0, 0.0))),
    case(c64(5, 5, fixed=True)),
    case(f32(2, 2, fixed=True, values=(1.0, 2.0, 2.0, 4.0))),
]


@decomposes(aten._linalg_det.default, cases=_DET[:3])
def linalg_det(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    factors, pivots, _ = lu_factor("linalg.det", _transposed_like_torch(matrix))
    return _parity(pivots) * _product(_diagonal(factors)), factors, pivots


@decomposes(aten.linalg_det.default, cases=_DET)
def det(matrix: Tensor) -> Tensor:
    return linalg_det(matrix)[0]


@decomposes(aten._linalg_slogdet.default, cases=_DET[:5])
def linalg_slogdet(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, pivots, _ = lu_factor("linalg.slogdet", _transposed_like_torch(matrix))
    diagonal = _diagonal(factors)
    sign = _parity(pivots) * _product(torch.sgn(diagonal))
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
    factors, _, permutation = lu_factor("linalg.inv", matrix)
    diagonal = _diagonal(factors)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    return solve_factored(factors, permutation, identity), first_failure(diagonal == 0)


@decomposes(
    aten.linalg_inv.default,
    aten.inverse.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_INVERTIBLE)),
        case(f32(2, 4, 4, fixed=True, values=_INVERTIBLE)),
        case(f32(2, 2, fixed=True, values=(0.0, 2.0, 3.0, 1.0))),
        case(c64(3, 3, fixed=True, values=(2 + 1j, 1j, -0.5, 3.0, 1 - 1j))),
        case(f32(66, 66, fixed=True)),
    ],
)
def inverse(matrix: Tensor) -> Tensor:
    return linalg_inv_ex(matrix)[0]


@decomposes(
    aten._linalg_solve_ex.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_INVERTIBLE), f32(3, 2, fixed=True), check_errors=True)
    ],
)
def linalg_solve_ex(
    matrix: Tensor, rhs: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, pivots, permutation = lu_factor("linalg.solve", matrix if left else matrix.mT)
    is_vector = rhs.dim() == 1 or (rhs.dim() == matrix.dim() - 1 and rhs.shape == matrix.shape[:-1])
    columns = rhs.unsqueeze(-1) if is_vector else rhs if left else rhs.mT
    solved = solve_factored(factors, permutation, columns)
    result = solved.squeeze(-1) if is_vector else solved if left else solved.mT
    diagonal = _diagonal(factors)
    return result, factors, pivots, first_failure(diagonal == 0)


@decomposes(
    aten.linalg_solve.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_INVERTIBLE), f32(3, 2, fixed=True)),
        case(f32(3, 3, fixed=True, values=_INVERTIBLE), f32(3, fixed=True)),
        case(f32(2, 3, 3, fixed=True, values=_INVERTIBLE), f32(2, 3, fixed=True)),
        case(f32(3, 3, fixed=True, values=_INVERTIBLE), f32(2, 4, 3, fixed=True), left=False),
    ],
)
def linalg_solve(matrix: Tensor, rhs: Tensor, *, left: bool = True) -> Tensor:
    return linalg_solve_ex(matrix, rhs, left=left)[0]


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
    """Round after every step, as torch's kernel does; torch's decomposition rounds once."""
    first, second = ([t.select(dim, i) for i in range(3)] for t in (x, other))
    parts = [
        first[(i + 1) % 3] * second[(i + 2) % 3] - first[(i + 2) % 3] * second[(i + 1) % 3]
        for i in range(3)
    ]
    return torch.stack(parts, dim)
