"""Lower eigh, svd and pinv: reduction to two diagonals, then divide and conquer.

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
from .condensed import eigen, left_singular, padding
from .jacobi import MOST_COLUMNS, singular_values
from .qr import apply_reflections, householder

_SMALL = 8  # rows


def _scale(matrix: Tensor) -> Tensor:
    """Return the largest magnitude; dividing by it keeps squares from over- and underflowing."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    return torch.where(largest == 0, 1.0, largest)


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
    values, *vectors = eigen(symmetric / scale, compute_v)
    return values * scale.squeeze(-1), vectors[0] if compute_v else empty


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
    """Return singular values, and left and right vectors, of a matrix with rows >= columns."""
    rows, count = matrix.shape[-2:]
    scale = _scale(matrix)
    square = matrix / scale
    if not with_vectors and 1 < count <= MOST_COLUMNS and rows <= _SMALL:
        return [singular_values(square) * scale.squeeze(-1)]
    if not with_vectors and rows <= _SMALL and rows + padding(rows) == count + padding(count):
        # A QR decomposition takes longer than the columns of zeros, which add values of zero.
        square = torch.nn.functional.pad(square, (0, rows - count))
        return [left_singular(square, False)[0][..., :count] * scale.squeeze(-1)]
    if rows > count:
        factor, weights = householder(square)
        square = factor[..., :count, :].triu()
    values, *vectors = left_singular(square, with_vectors)
    values = values * scale.squeeze(-1)
    if not with_vectors:
        return [values]
    left = vectors[0]
    right = _basis(square.mT @ left)
    if rows > count:
        width = rows if full else count
        left = torch.nn.functional.pad(left, (0, width - count, 0, rows - count))
        rest = torch.diag_embed(torch.arange(rows) >= count)[:, :width]
        left = left + rest.to(left.dtype)
        left = apply_reflections(factor, weights, left, False)
    return [values, left, right]


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
