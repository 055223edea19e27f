"""Lower eigh, svd, pinv, linalg_polar and linalg_matrix_sqrth with Jacobi's rotations.

svd rotates the factor of a QR decomposition. The signs of the vectors differ from LAPACK's; for
repeated values the basis of their space may differ. The last two ops are new in torch 2.14.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import only_real, static_size
from .jacobi import eigenvectors, orthogonal_columns
from .qr import apply_reflections, householder

Diagonalize = Callable[[Tensor, bool], list[Tensor]]  # of a matrix, and whether with vectors


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
    return eigh(matrix, UPLO, compute_v, _eigen)


def eigh(
    matrix: Tensor, triangle: str, with_vectors: bool, eigen: Diagonalize
) -> tuple[Tensor, Tensor]:
    """Return the results of `eigen` for the symmetric matrix, which it gets with a norm of 1."""
    only_real("linalg.eigh", matrix)
    count = static_size("linalg.eigh", matrix, -1)
    empty = matrix.new_empty(0)
    if count == 0:
        return matrix.new_empty(matrix.shape[:-1]), matrix.clone() if with_vectors else empty
    symmetric = _symmetric(matrix, triangle.upper() == "L")
    scale = _scale(symmetric)
    values, *vectors = eigen(symmetric / scale, with_vectors)
    return values * scale.squeeze(-1), vectors[0] if with_vectors else empty


def _eigen(matrix: Tensor, with_vectors: bool) -> list[Tensor]:
    """Return ascending eigenvalues, and the eigenvectors."""
    vectors = eigenvectors(matrix)
    # More accurate than the diagonal of the rotated matrix, by the rounding errors of all sweeps.
    values, order = (vectors * (matrix @ vectors)).sum(-2).sort(-1)
    return [values, vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))]


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


def _svd_tall(
    matrix: Tensor, full: bool, with_vectors: bool, singular: Diagonalize
) -> list[Tensor]:
    """Return singular values, and left and right vectors, of a matrix with rows >= columns."""
    rows, count = matrix.shape[-2:]
    scale = _scale(matrix)
    factor, weights = householder(matrix / scale)
    values, *vectors = singular(factor[..., :count, :].triu().mT, with_vectors)
    values = values * scale.squeeze(-1)
    if not vectors:
        return [values]
    turned, left = vectors
    missing = rows - count
    left = torch.nn.functional.pad(left, (0, missing if full else 0, 0, missing))
    if full:
        left = left + torch.diag_embed((torch.arange(rows) >= count).to(left.dtype))
    left = apply_reflections(factor, weights, left, False)
    return [values, left, _basis(turned)]


def _singular(lower: Tensor, with_vectors: bool) -> list[Tensor]:
    """Return the lengths of the rotated columns, the columns, and the rotation.

    The columns of a lower factor are nearly orthogonal: half of the sweeps suffice.
    """
    identity = [torch.eye(lower.shape[-1], dtype=lower.dtype).expand(lower.shape)]
    turned, *basis = orthogonal_columns(lower, *(identity if with_vectors else []))
    values, order = (turned * turned).sum(-2).sqrt().sort(-1, descending=True)
    order = order.unsqueeze(-2).expand(lower.shape)
    return [values, *(x.gather(-1, order) for x in (turned, *basis) if with_vectors)]


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
    return svd(matrix, full_matrices, compute_uv, _singular)


def svd(
    matrix: Tensor, full: bool, with_vectors: bool, singular: Diagonalize
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the decomposition that `singular` makes of a lower triangular matrix of norm 1.

    It returns descending singular values, and if requested the product of the matrix with its right
    vectors, and these.
    """
    only_real("linalg.svd", matrix)
    rows, columns = (static_size("linalg.svd", matrix, axis) for axis in (-2, -1))
    empty = matrix.new_empty(0)
    if min(rows, columns) == 0:
        values = matrix.new_empty((*matrix.shape[:-2], 0))
        if not with_vectors:
            return empty, values, empty
        left, right = (n if full else 0 for n in (rows, columns))
        lead = matrix.shape[:-2]
        identity = torch.eye(rows, left, dtype=matrix.dtype).expand(*lead, rows, left)
        other = torch.eye(right, columns, dtype=matrix.dtype).expand(*lead, right, columns)
        return identity.clone(), values, other.clone()
    rotated = rows < columns
    result = _svd_tall(matrix.mT if rotated else matrix, full, with_vectors, singular)
    if not with_vectors:
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
        values, vectors = aten._linalg_eigh.default(matrix)
        is_nonzero = _is_nonzero(values.abs(), least, rtol)
        inverse = torch.where(is_nonzero, 1 / values, 0.0).unsqueeze(-2)
        return (vectors * inverse) @ vectors.mT
    left, values, right = aten._linalg_svd.default(matrix)
    inverse = torch.where(_is_nonzero(values, least, rtol), 1 / values, 0.0).unsqueeze(-2)
    return (right.mT * inverse) @ left.mT


_POSITIVE = (4.0, 1.0, 0.5, 1.0, 3.0, -0.5, 0.5, -0.5, 2.0)
_INDEFINITE = (1.0, 2.0, 2.0, 1.0)


@decomposes(
    aten.linalg_polar.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_POSITIVE)),
        case(f32(4, 2, fixed=True)),
        case(f32(2, 3, 3, fixed=True)),
    ],
)
def linalg_polar(matrix: Tensor) -> tuple[Tensor, Tensor]:
    left, values, right = aten._linalg_svd.default(matrix)
    return left @ right, right.mT @ (values.unsqueeze(-1) * right)


@decomposes(
    aten.linalg_matrix_sqrth.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_POSITIVE)),
        case(f32(2, 2, fixed=True, values=_INDEFINITE)),
        case(f32(2, 3, 3, fixed=True, values=_POSITIVE)),
    ],
)
def linalg_matrix_sqrth(matrix: Tensor) -> Tensor:
    """Return the square root of a symmetric matrix; negative eigenvalues count as zero."""
    values, vectors = aten._linalg_eigh.default(matrix)
    return vectors @ (values.clamp(min=0).sqrt().unsqueeze(-1) * vectors.mT)
