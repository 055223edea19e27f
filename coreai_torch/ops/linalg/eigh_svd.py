"""Lower eigh, svd and pinv with Jacobi rotations (two-sided for eigh, one-sided for svd).

Each step rotates n / 2 column pairs at once and then shifts all columns but the first by one
position (round-robin order), so that after n - 1 steps every pair has met. The signs of the vectors
differ from LAPACK's; for repeated values the basis of their space may differ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import Step, only_real, static_size, steps
from .qr import apply_reflections, householder


def _rotations(first: Tensor, second: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Return sine, and tangent of the half angle, of the rotation that zeroes `product`."""
    is_zero = product == 0
    slope = (second - first) / torch.where(is_zero, 1.0, 2 * product)
    sign = torch.where(slope < 0, -1.0, 1.0)
    # A slope above 1e19 has an infinite square; the tangent is then zero, as it should be.
    tangent = sign / (slope.abs() + (1 + slope * slope).sqrt())
    tangent = torch.where(is_zero, 0.0, tangent)
    length = (1 + tangent * tangent).sqrt()
    return tangent / length, tangent / (1 + length)


def _rotate_pairs(columns: Tensor, sine: Tensor, half_tangent: Tensor) -> Tensor:
    """Rotate the column pairs (0, h), (1, h + 1), ..., and shift all columns but the first."""
    half = columns.shape[-1] // 2
    top, bottom = columns[..., :half], columns[..., half:]
    sine, half_tangent = sine.unsqueeze(-2), half_tangent.unsqueeze(-2)
    # In this form small rotations add small errors, not one unit in the last place each.
    first = top - sine * (bottom + half_tangent * top)
    second = bottom + sine * (top - half_tangent * bottom)
    if half == 1:
        return torch.cat([first, second], -1)
    parts = first[..., :1], second[..., :1], first[..., 1:-1], second[..., 1:], first[..., -1:]
    return torch.cat(parts, -1)


def _step_count(columns: int) -> int:
    """Return the number of steps, a multiple of a round, so that columns return to their places.

    Convergence is quadratic in the last rounds: 8 rounds suffice for 128 columns in float32.
    """
    return (6 + columns.bit_length()) * (columns - 1)


def _even(columns: int) -> int:
    return columns + columns % 2


def _identity(like: Tensor, columns: int) -> Tensor:
    return torch.eye(columns, dtype=like.dtype).expand(*like.shape[:-2], columns, columns)


def _scale(matrix: Tensor) -> Tensor:
    """Return the largest magnitude; dividing by it keeps squares from over- and underflowing."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    return torch.where(largest == 0, 1.0, largest)


def _symmetric(matrix: Tensor, lower: bool) -> Tensor:
    """Return the symmetric matrix that one triangle defines."""
    half = matrix.tril(-1) if lower else matrix.triu(1)
    diagonal = torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))
    return half + half.mT + diagonal


def _eigen_steps(matrix: Tensor, with_vectors: bool) -> list[Tensor]:
    """Return a diagonal matrix with the same eigenvalues, and the eigenvectors if requested."""
    count = matrix.shape[-1]
    half = count // 2

    def body(k: Step, matrix: Tensor, *vectors: Tensor) -> list[Tensor]:
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        product = matrix[..., :half, half:].diagonal(dim1=-2, dim2=-1)
        rotations = _rotations(diagonal[..., :half], diagonal[..., half:], product)
        rotated = _rotate_pairs(_rotate_pairs(matrix, *rotations).mT, *rotations)
        return [rotated, *(_rotate_pairs(v, *rotations) for v in vectors)]

    vectors = [_identity(matrix, count)] if with_vectors else []
    return steps(_step_count(count), body, [matrix, *vectors])


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
    padding = _even(count) - count
    padded = torch.nn.functional.pad(symmetric / scale, (0, padding, 0, padding))
    rotated, *vectors = _eigen_steps(padded, compute_v)
    diagonal = rotated.diagonal(dim1=-2, dim2=-1)[..., :count]
    values, order = diagonal.sort(-1)
    values = values * scale.squeeze(-1)
    if not compute_v:
        return values, empty
    result = vectors[0][..., :count, :count]
    return values, result.gather(-1, order.unsqueeze(-2).expand(result.shape))


def _singular_steps(matrix: Tensor, with_vectors: bool) -> list[Tensor]:
    """Orthogonalize the columns; also return the accumulated rotations if requested."""
    count = matrix.shape[-1]
    half = count // 2

    def body(k: Step, matrix: Tensor, *vectors: Tensor) -> list[Tensor]:
        squares = (matrix * matrix).sum(-2)
        product = (matrix[..., :half] * matrix[..., half:]).sum(-2)
        rotations = _rotations(squares[..., :half], squares[..., half:], product)
        return [_rotate_pairs(x, *rotations) for x in (matrix, *vectors)]

    vectors = [_identity(matrix, count)] if with_vectors else []
    return steps(_step_count(count), body, [matrix, *vectors])


def _basis(columns: Tensor, full: bool) -> Tensor:
    """Return an orthonormal basis along orthogonal columns, longest first.

    Zero columns get arbitrary orthogonal vectors.
    """
    rows, count = columns.shape[-2:]
    factor, weights = householder(columns)
    width = rows if full else count
    identity = torch.eye(rows, width, dtype=columns.dtype).expand(*columns.shape[:-1], width)
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    signs = torch.where(diagonal < 0, -1.0, 1.0)
    signs = torch.nn.functional.pad(signs, (0, width - count), value=1.0)
    return apply_reflections(factor, weights, identity, False) * signs.unsqueeze(-2)


def _svd_tall(matrix: Tensor, full: bool, with_vectors: bool) -> list[Tensor]:
    """Return singular values, and left and right vectors, of a matrix with rows >= columns."""
    count = matrix.shape[-1]
    scale = _scale(matrix)
    padded = torch.nn.functional.pad(matrix / scale, (0, _even(count) - count))
    rotated, *vectors = _singular_steps(padded, with_vectors)
    lengths = torch.linalg.vector_norm(rotated[..., :count], dim=-2)
    values, order = lengths.sort(-1, descending=True)
    values = values * scale.squeeze(-1)
    if not with_vectors:
        return [values]
    along = order.unsqueeze(-2)
    columns, right = rotated[..., :count], vectors[0][..., :count, :count]
    columns = columns.gather(-1, along.expand(columns.shape))
    return [values, _basis(columns, full), right.gather(-1, along.expand(right.shape))]


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
