"""Lower eigh, svd and pinv with Jacobi's rotations; svd rotates the factor of a QR decomposition.

The signs of the vectors differ from LAPACK's; for repeated values the basis of their space may
differ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import only_real, static_size
from .jacobi import eigenvectors, orthogonal_columns
from .qr import apply_reflections, householder


def _scale(matrix: Tensor) -> Tensor:
    """Return the root of the sum of all squares, of numbers that neither over- nor underflow."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    largest = torch.where(largest == 0, 1.0, largest)
    scaled = matrix / largest
    norm = (scaled * scaled).sum((-2, -1), keepdim=True).sqrt()
    return largest * norm.clamp(min=1)


def _symmetric(matrix: Tensor, lower: bool) -> Tensor:
    """Return the symmetric matrix that one triangle defines."""
    half = matrix.tril(-1) if lower else matrix.triu(1)
    diagonal = torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))
    return half + half.mT + diagonal


_SYMMETRIC = [
    case(f32(2, 2, fixed=True, values=(2.0, 1.0, 1.0, -3.0)), "L", False),
    case(f32(2, 5, 5, fixed=True), "U", False),
    case(f32(1, 1, fixed=True), "L", False),
    case(f32(4, 4, fixed=True, values=(0.0,)), "L", False),
]


@decomposes(aten._linalg_eigh.default, cases=_SYMMETRIC)
def linalg_eigh(
    matrix: Tensor,
    UPLO: str = "L",  # noqa: N803  the schema's name
    compute_v: bool = True,
) -> tuple[Tensor, Tensor]:
    only_real("linalg.eigh", matrix)
    count = static_size("linalg.eigh", matrix, -1)
    empty = matrix.new_empty(0)
    if count == 0:
        return matrix.new_empty(matrix.shape[:-1]), matrix.clone() if compute_v else empty
    symmetric = _symmetric(matrix, UPLO.upper() == "L")
    scale = _scale(symmetric)
    scaled = symmetric / scale
    vectors = eigenvectors(scaled)
    # More accurate than the diagonal of the rotated matrix, by the rounding errors of all sweeps.
    values, order = (vectors * (scaled @ vectors)).sum(-2).sort(-1)
    vectors = vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))
    return values * scale.squeeze(-1), vectors if compute_v else empty


@decomposes(aten.linalg_eigvalsh.default, cases=[case(*c.args[:2]) for c in _SYMMETRIC])
def linalg_eigvalsh(
    matrix: Tensor,
    UPLO: str = "L",  # noqa: N803  the schema's name
) -> Tensor:
    """Return the eigenvalues; torch's decomposition also computes the vectors."""
    # torch traces composite ops such as this one twice; the internal op stands for the work once.
    values: Tensor = aten._linalg_eigh.default(matrix, UPLO, False)[0]
    return values


def _basis(columns: Tensor) -> Tensor:
    """Return an orthonormal basis along orthogonal columns, longest first.

    Zero columns get arbitrary orthogonal vectors.
    """
    factor, weights = householder(columns)
    identity = torch.eye(columns.shape[-1], dtype=columns.dtype).expand(columns.shape)
    signs = torch.where(factor.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    return apply_reflections(factor, weights, identity, False) * signs.unsqueeze(-2)


def _svd_tall(matrix: Tensor, full: bool, with_vectors: bool) -> list[Tensor]:
    """Return singular values, and left and right vectors, of a matrix with rows >= columns.

    The columns of `Rᵀ` are rotated: they are nearly orthogonal, and half of the sweeps suffice.
    """
    rows, count = matrix.shape[-2:]
    scale = _scale(matrix)
    factor, weights = householder(matrix / scale)
    lower = factor[..., :count, :].triu().mT
    identity = [torch.eye(count, dtype=matrix.dtype).expand(lower.shape)] if with_vectors else []
    turned, *basis = orthogonal_columns(lower, *identity)
    values, order = (turned * turned).sum(-2).sqrt().sort(-1, descending=True)
    if not basis:
        return [values * scale.squeeze(-1)]
    order = order.unsqueeze(-2).expand(lower.shape)
    turned, left = (x.gather(-1, order) for x in (turned, *basis))
    missing = rows - count
    left = torch.nn.functional.pad(left, (0, missing if full else 0, 0, missing))
    if full:
        left = left + torch.diag_embed((torch.arange(rows) >= count).to(left.dtype))
    left = apply_reflections(factor, weights, left, False)
    return [values * scale.squeeze(-1), left, _basis(turned)]


_MATRICES = [
    case(f32(2, 2, fixed=True), False, False),
    case(f32(2, 5, 3, fixed=True), False, False),
    case(f32(3, 6, fixed=True), False, False),
    case(f32(3, 1, fixed=True), False, False),
    case(f32(3, 3, fixed=True, values=(0.0,)), False, False),
]


@decomposes(aten._linalg_svd.default, cases=_MATRICES)
def linalg_svd(
    matrix: Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    only_real("linalg.svd", matrix)
    rows, columns = (static_size("linalg.svd", matrix, axis) for axis in (-2, -1))
    empty = matrix.new_empty(0)
    if min(rows, columns) == 0:
        values = matrix.new_empty((*matrix.shape[:-2], 0))
        if not compute_uv:
            return empty, values, empty
        left, right = (n if full_matrices else 0 for n in (rows, columns))
        lead = matrix.shape[:-2]
        identity = torch.eye(rows, left, dtype=matrix.dtype).expand(*lead, rows, left)
        other = torch.eye(right, columns, dtype=matrix.dtype).expand(*lead, right, columns)
        return identity.clone(), values, other.clone()
    rotated = rows < columns
    result = _svd_tall(matrix.mT if rotated else matrix, full_matrices, compute_uv)
    if not compute_uv:
        return empty, result[0], empty
    values, first, second = result
    return (second, values, first.mT) if rotated else (first, values, second.mT)


@decomposes(aten.linalg_svdvals.default, cases=[case(*c.args[:1]) for c in _MATRICES])
def linalg_svdvals(matrix: Tensor, *, driver: str | None = None) -> Tensor:
    """Return the singular values; torch's decomposition also computes the vectors."""
    # torch traces composite ops such as this one twice; the internal op stands for the work once.
    values: Tensor = aten._linalg_svd.default(matrix, False, False)[1]
    return values


def _is_nonzero(sizes: Tensor, atol: Tensor, rtol: Tensor) -> Tensor:
    """Return which values count as nonzero."""
    largest = sizes.amax(-1, keepdim=True)
    return sizes > torch.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * largest)


@decomposes(
    aten.linalg_pinv.atol_rtol_tensor,
    cases=[
        case(f32(2, 5, 3, fixed=True)),
        case(f32(3, 6, fixed=True)),
        case(f32(3, 3, fixed=True, values=(1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 0.0, 1.0, 0.0))),
        case(f32(3, 3, fixed=True), rtol=f32(fixed=True, values=(0.5,))),
        case(f32(3, 3, fixed=True), atol=f32(fixed=True, values=(1.0,)), hermitian=True),
    ],
)
def linalg_pinv(
    matrix: Tensor,
    *,
    atol: Tensor | None = None,
    rtol: Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    rows, columns = (static_size("linalg.pinv", matrix, axis) for axis in (-2, -1))
    if min(rows, columns) == 0:
        return matrix.new_zeros(matrix.mT.shape)
    least = torch.zeros((), dtype=matrix.dtype) if atol is None else atol
    if rtol is None:
        rtol = torch.where(least > 0, 0.0, torch.finfo(matrix.dtype).eps * max(rows, columns))
    if hermitian:
        values, vectors = linalg_eigh(matrix)
        is_nonzero = _is_nonzero(values.abs(), least, rtol)
        inverse = torch.where(is_nonzero, 1 / values, 0.0).unsqueeze(-2)
        return (vectors * inverse) @ vectors.mT
    left, values, right = linalg_svd(matrix)
    inverse = torch.where(_is_nonzero(values, least, rtol), 1 / values, 0.0).unsqueeze(-2)
    return (right.mT * inverse) @ left.mT
