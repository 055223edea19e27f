"""Lower qr, geqrf, ormqr and householder_product with Householder reflections.

The signs are LAPACK's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import Step, column, only_real, place, static_size, steps

_MATRICES = [
    case(f32(3, 3, fixed=True)),
    case(f32(2, 4, 3, fixed=True)),
    case(f32(3, 6, fixed=True)),
    case(f32(2, 7, 6, fixed=True)),
    case(f32(3, 2, fixed=True, values=(0.0,))),
    case(f32(2, 2, fixed=True, values=(-3.0, 1.0, 0.0, 2.0))),
    # The squares of the first column are zero, those of the second infinite in float32.
    case(f32(3, 2, fixed=True, values=(3e-30, 1e25, -4e-30, 2e25, 1e-30, -3e25))),
]


def householder(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return R above the Householder vectors in one matrix (as geqrf), and the weights (tau)."""
    rows, columns = (static_size("linalg.qr", matrix, axis) for axis in (-2, -1))
    count = min(rows, columns)

    def body(k: Step, matrix: Tensor, weights: Tensor) -> list[Tensor]:
        below, here = torch.arange(rows) > k, torch.arange(rows) == k
        given = column(matrix, k)
        first = given.index_select(-1, place(k))
        tail_norm = _norm(torch.where(below, given, 0.0))
        is_zero = tail_norm == 0
        norm = _norm(torch.cat([first, tail_norm], -1))
        reflected_norm = torch.where(is_zero, first, torch.where(first < 0, norm, -norm))
        weight = torch.where(
            is_zero, 0.0, (reflected_norm - first) / torch.where(is_zero, 1.0, reflected_norm)
        )
        vector = torch.where(below, given / torch.where(is_zero, 1.0, first - reflected_norm), 0.0)
        updated = _reflect(torch.where(here, 1.0, vector), weight, matrix)
        kept = torch.where(torch.arange(columns) > k, updated, matrix)
        column_ = torch.where(below, vector, torch.where(here, reflected_norm, given)).unsqueeze(-1)
        matrix = torch.where(torch.arange(columns) == k, column_, kept)
        return [matrix, torch.where(torch.arange(count) == k, weight, weights)]

    weights = matrix.new_zeros((*matrix.shape[:-2], count))
    factor, weights = steps(count, body, [matrix, weights])
    return factor, weights


def _norm(vector: Tensor) -> Tensor:
    """Return the norm of each vector, as LAPACK without overflow and underflow of the squares.

    Scaling by a power of two is exact.
    """
    largest = vector.abs().amax(-1, keepdim=True)
    is_small, is_large = largest < 2.0**-40, largest > 2.0**40
    up = torch.where(is_small, 2.0**80, torch.where(is_large, 2.0**-80, 1.0))
    down = torch.where(is_small, 2.0**-80, torch.where(is_large, 2.0**80, 1.0))
    return torch.linalg.vector_norm(vector * up, dim=-1, keepdim=True) * down


def _reflect(vector: Tensor, weight: Tensor, matrix: Tensor) -> Tensor:
    """Return `(1 - weight * vector * vectorᵀ) @ matrix`."""
    products = (vector.unsqueeze(-1) * matrix).sum(-2, keepdim=True)
    return matrix - (weight * vector).unsqueeze(-1) * products


def apply_reflections(vectors: Tensor, weights: Tensor, other: Tensor, transpose: bool) -> Tensor:
    """Multiply from the left by Q, the product of all reflections, or by its transpose."""
    rows, count = vectors.shape[-2], weights.shape[-1]

    def body(k: Step, other: Tensor, vectors: Tensor, weights: Tensor) -> list[Tensor]:
        at = k if transpose else count - 1 - k
        rows_index = torch.arange(rows)
        lower = torch.where(rows_index > at, column(vectors, at), 0.0)
        vector = torch.where(rows_index == at, 1.0, lower)
        return [_reflect(vector, weights.index_select(-1, place(at)), other)]

    return steps(count, body, [other], [vectors, weights])[0]


@decomposes(aten.geqrf.default, cases=[*_MATRICES[1:3], _MATRICES[-1]])
def geqrf(matrix: Tensor) -> tuple[Tensor, Tensor]:
    only_real("geqrf", matrix)
    return householder(matrix)


@decomposes(
    aten.linalg_householder_product.default,
    cases=[
        case(f32(3, 3, fixed=True), f32(3, fixed=True)),
        case(f32(2, 7, 6, fixed=True), f32(2, 5, fixed=True)),
    ],
)
def linalg_householder_product(vectors: Tensor, weights: Tensor) -> Tensor:
    only_real("linalg.householder_product", vectors)
    rows, columns = (static_size("linalg.householder_product", vectors, a) for a in (-2, -1))
    identity = torch.eye(rows, columns, dtype=vectors.dtype).expand(vectors.shape)
    return apply_reflections(vectors, weights, identity, False)


@decomposes(
    aten.ormqr.default,
    cases=[
        case(f32(3, 3, fixed=True), f32(3, fixed=True), f32(3, 2, fixed=True)),
        case(f32(7, 6, fixed=True), f32(6, fixed=True), f32(7, 2, fixed=True), transpose=True),
        case(f32(3, 3, fixed=True), f32(3, fixed=True), f32(2, 3, fixed=True), False),
        case(
            f32(2, 3, 3, fixed=True), f32(2, 3, fixed=True), f32(2, 2, 3, fixed=True), False, True
        ),
    ],
)
def ormqr(
    vectors: Tensor, weights: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    only_real("ormqr", vectors, other)
    static_size("ormqr", vectors, -2)
    if left:
        return apply_reflections(vectors, weights, other, transpose)
    return apply_reflections(vectors, weights, other.mT, not transpose).mT


@decomposes(
    aten.linalg_qr.default,
    cases=[
        *_MATRICES,
        *(case(c.args[0], mode) for c in _MATRICES[1:3] for mode in ("complete", "r")),
    ],
)
def linalg_qr(matrix: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    only_real("linalg.qr", matrix)
    rows, columns = (static_size("linalg.qr", matrix, axis) for axis in (-2, -1))
    width = rows if mode == "complete" else min(rows, columns)
    factor, weights = householder(matrix)
    upper = factor[..., :width, :].triu()
    if mode == "r":
        return matrix.new_empty(0), upper
    identity = torch.eye(rows, width, dtype=matrix.dtype).expand(*matrix.shape[:-1], width)
    return apply_reflections(factor, weights, identity, False), upper
