"""Lower qr, geqrf, ormqr and householder_product with Householder reflections.

The signs are LAPACK's. A step updates the 64 columns of its block; matrix products update the rest
(WY representation).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import Step, column, only_real, place, static_size, steps
from .cholesky import blocks

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
    if count == 0:
        return matrix, matrix.new_zeros((*matrix.shape[:-2], 0))
    finished: list[Tensor] = []
    weights: list[Tensor] = []
    for block in blocks(count):
        panel, panel_weights = _reduce_panel(matrix[..., block], block.start)
        finished.append(panel)
        weights.append(panel_weights)
        if block.stop < columns:  # the columns before are not read again
            matrix = _apply_block(_lower(panel, block), panel_weights, matrix, True)
    if count < columns:
        finished.append(matrix[..., count:])
    return torch.cat(finished, -1), torch.cat(weights, -1)


def _reduce_panel(panel: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Reduce columns to a triangle, whose first row is `start`, and the vectors below it.

    A step writes its column to `found` and then updates all columns of `panel`, as `where` takes
    the runtime 40 times as long as a product.
    """
    rows, columns = panel.shape[-2:]

    def body(k: Step, panel: Tensor, found: Tensor, weights: Tensor) -> list[Tensor]:
        at = k + start
        below, here = torch.arange(rows) > at, torch.arange(rows) == at
        given = column(panel, k)
        first = given.index_select(-1, place(at))
        tail = torch.where(below, given, 0.0)
        largest = tail.abs().amax(-1, keepdim=True)
        is_zero = largest == 0
        up, down = _scales(torch.maximum(largest, first.abs()))
        first, tail = first * up, tail * up
        norm = (first * first + (tail * tail).sum(-1, keepdim=True)).sqrt()
        reflected = torch.where(is_zero, first, torch.where(first < 0, norm, -norm))
        weight = (reflected - first) / torch.where(is_zero, 1.0, reflected)
        weight = torch.where(is_zero, 0.0, weight)
        tail = tail / torch.where(is_zero, 1.0, first - reflected)
        vector = tail + here.to(tail.dtype)
        products = vector.unsqueeze(-2) @ panel
        finished = torch.where(below, tail, torch.where(here, reflected * down, given))
        return [
            panel - (weight * vector).unsqueeze(-1) * products,
            found.index_copy(-2, place(k), finished.unsqueeze(-2)),
            weights.index_copy(-1, place(k), weight),
        ]

    found = panel.new_zeros((*panel.shape[:-2], columns, rows))
    weights = panel.new_zeros((*panel.shape[:-2], columns))
    _, found, weights = steps(columns, body, [panel, found, weights])
    return found.mT, weights


def _scales(largest: Tensor) -> tuple[Tensor, Tensor]:
    """Return a scale that keeps the squares from over- and underflowing, and its inverse.

    Scaling by a power of two is exact. It makes subnormal numbers normal, which have too few digits
    for an orthogonal reflection.
    """
    is_small, is_large = largest < 2.0**-40, largest > 2.0**40
    up = torch.where(is_small, 2.0**90, torch.where(is_large, 2.0**-80, 1.0))
    down = torch.where(is_small, 2.0**-90, torch.where(is_large, 2.0**80, 1.0))
    return up, down


def _lower(panel: Tensor, block: slice) -> Tensor:
    """Return the Householder vectors: one on the diagonal of the block, zero above."""
    ones = torch.eye(panel.shape[-2], block.stop, dtype=panel.dtype)[:, block]
    return panel.tril(-1 - block.start) + ones


def _apply_block(vectors: Tensor, weights: Tensor, other: Tensor, transpose: bool) -> Tensor:
    """Multiply from the left by the product of some reflections, or by its transpose."""
    triangle = _triangle(vectors, weights)
    triangle = triangle if transpose else triangle.mT
    return other - vectors @ (triangle @ (vectors.mT @ other))


def _triangle(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the transpose of T, where `1 - vectors @ T @ vectorsᵀ` is the product (larft)."""
    products = (vectors.mT @ vectors).tril(-1) * weights.unsqueeze(-1)
    diagonal = torch.diag_embed(weights)

    def body(k: Step, found: Tensor, products: Tensor, diagonal: Tensor) -> list[Tensor]:
        at = place(k)
        row = diagonal.index_select(-2, at) - products.index_select(-2, at) @ found
        return [found.index_copy(-2, at, row)]

    return steps(weights.shape[-1], body, [torch.zeros_like(products)], [products, diagonal])[0]


def apply_reflections(vectors: Tensor, weights: Tensor, other: Tensor, transpose: bool) -> Tensor:
    """Multiply from the left by Q, the product of all reflections, or by its transpose."""
    slices = blocks(weights.shape[-1])
    for block in slices if transpose else reversed(slices):
        lower = _lower(vectors[..., block], block)
        other = _apply_block(lower, weights[..., block], other, transpose)
    return other


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
