"""Lower qr, geqrf, ormqr and householder_product with Householder reflections.

The signs are LAPACK's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import Step, column, only_real, place, row, static_size, steps

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
    """Return R above the Householder vectors in one matrix (as geqrf), and the weights (tau).

    A step writes its column to `found` and reflects all columns of the matrix.
    """
    rows, columns = (static_size("linalg.qr", matrix, axis) for axis in (-2, -1))
    count = min(rows, columns)
    if count == 0:
        return matrix, matrix.new_zeros((*matrix.shape[:-2], 0))

    def body(k: Step, matrix: Tensor, found: Tensor, weights: Tensor) -> list[Tensor]:
        at = place(k)
        below, here = torch.arange(rows) > at, torch.arange(rows) == at
        given = column(matrix, k)
        first = given.index_select(-1, at)
        tail = torch.where(below, given, 0.0)
        largest = tail.abs().amax(-1, keepdim=True)
        is_zero = largest == 0
        up, down = _scales(torch.maximum(largest, first.abs()))
        first, tail = first * up, tail * up
        norm = (first * first + (tail * tail).sum(-1, keepdim=True)).sqrt()
        reflected = torch.where(is_zero, first, torch.where(first < 0, norm, -norm))
        weight = (reflected - first) / torch.where(is_zero, 1.0, reflected)
        tail = tail / torch.where(is_zero, 1.0, first - reflected)
        finished = torch.where(below, tail, torch.where(here, reflected * down, given))
        return [
            _reflected(tail + here.to(tail.dtype), weight, matrix),
            found.index_copy(-2, at, finished.unsqueeze(-2)),
            weights.index_copy(-1, at, weight),
        ]

    found = matrix.new_zeros((*matrix.shape[:-2], count, rows))
    weights = matrix.new_zeros((*matrix.shape[:-2], count))
    matrix, found, weights = steps(count, body, [matrix, found, weights])
    return torch.cat([found.mT, matrix[..., count:]], -1), weights


def _reflected(vector: Tensor, weight: Tensor, matrix: Tensor) -> Tensor:
    """Return `(1 - weight * vector @ vectorᵀ) @ matrix`."""
    return matrix - (weight * vector).unsqueeze(-1) * (vector.unsqueeze(-2) @ matrix)


def _scales(largest: Tensor) -> tuple[Tensor, Tensor]:
    """Return a scale that keeps the squares from over- and underflowing, and its inverse.

    Scaling by a power of two is exact. It makes subnormal numbers normal, which have too few digits
    for an orthogonal reflection.
    """
    is_small, is_large = largest < 2.0**-40, largest > 2.0**40
    up = torch.where(is_small, 2.0**90, torch.where(is_large, 2.0**-80, 1.0))
    down = torch.where(is_small, 2.0**-90, torch.where(is_large, 2.0**80, 1.0))
    return up, down


def apply_reflections(vectors: Tensor, weights: Tensor, other: Tensor, transpose: bool) -> Tensor:
    """Multiply from the left by Q, the product of all reflections, or by its transpose."""
    count = weights.shape[-1]
    given = vectors[..., :count].tril(-1) + torch.eye(vectors.shape[-2], count, dtype=other.dtype)

    def body(k: Step, other: Tensor, given: Tensor, weights: Tensor) -> list[Tensor]:
        k = k if transpose else count - 1 - k
        return [_reflected(row(given, k), weights.index_select(-1, place(k)), other)]

    return steps(count, body, [other], [given.mT.contiguous(), weights])[0]


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
