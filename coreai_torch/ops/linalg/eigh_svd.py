"""Eigenvalues of symmetric matrices and singular values of any, by rotations of pairs.

Each step turns half as many pairs as there are columns at once, and then moves all columns but
the first on by one place, so that after one round each has met every other. Vectors come with
another sign than LAPACK gives them, or, where values coincide, as another basis of their space.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import Step, only_real, static_size, steps
from .qr import applied, reflected


def _turns(first: Tensor, second: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Sine, and tangent of the half, of the turn after which two columns have no product."""
    still = product == 0
    slope = (second - first) / torch.where(still, 1.0, 2 * product)
    toward = torch.where(slope < 0, -1.0, 1.0)
    # A slope above 1e19 has an infinite square, and then the tangent is zero, as it should be.
    tangent = toward / (slope.abs() + (1 + slope * slope).sqrt())
    tangent = torch.where(still, 0.0, tangent)
    length = (1 + tangent * tangent).sqrt()
    return tangent / length, tangent / (1 + length)


def _turned(columns: Tensor, sine: Tensor, half_tangent: Tensor) -> Tensor:
    """The pairs (0, h), (1, h + 1), ... of columns turned, and all but the first moved on."""
    half = columns.shape[-1] // 2
    top, bottom = columns[..., :half], columns[..., half:]
    sine, half_tangent = sine.unsqueeze(-2), half_tangent.unsqueeze(-2)
    # Rounded like this, small turns add small errors, and not one unit each.
    first = top - sine * (bottom + half_tangent * top)
    second = bottom + sine * (top - half_tangent * bottom)
    if half == 1:
        return torch.cat([first, second], -1)
    parts = first[..., :1], second[..., :1], first[..., 1:-1], second[..., 1:], first[..., -1:]
    return torch.cat(parts, -1)


def _meetings(columns: int) -> int:
    """Steps of all rounds, after which each column stands where it stood.

    The error is squared by each of the last rounds: 8 are enough for 128 columns in float32.
    """
    return (6 + columns.bit_length()) * (columns - 1)


def _even(columns: int) -> int:
    return columns + columns % 2


def _identity(like: Tensor, columns: int) -> Tensor:
    return torch.eye(columns, dtype=like.dtype).expand(*like.shape[:-2], columns, columns)


def _scale(matrix: Tensor) -> Tensor:
    """The largest element, so that squares neither overflow nor vanish."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    return torch.where(largest == 0, 1.0, largest)


def _symmetric(matrix: Tensor, lower: bool) -> Tensor:
    """The matrix that one of its triangles tells."""
    half = matrix.tril(-1) if lower else matrix.triu(1)
    middle = torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))
    return half + half.mT + middle


def _eigen_steps(matrix: Tensor, with_vectors: bool) -> list[Tensor]:
    """A diagonal matrix with the same eigenvalues, and their vectors if asked for."""
    count = matrix.shape[-1]
    half = count // 2

    def body(k: Step, matrix: Tensor, *vectors: Tensor) -> list[Tensor]:
        middle = matrix.diagonal(dim1=-2, dim2=-1)
        product = matrix[..., :half, half:].diagonal(dim1=-2, dim2=-1)
        turns = _turns(middle[..., :half], middle[..., half:], product)
        turned = _turned(_turned(matrix, *turns).mT, *turns)
        return [turned, *(_turned(v, *turns) for v in vectors)]

    vectors = [_identity(matrix, count)] if with_vectors else []
    return steps(_meetings(count), body, [matrix, *vectors])


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
    none = matrix.new_empty(0)
    if count == 0:
        return matrix.new_empty(matrix.shape[:-1]), matrix.clone() if compute_v else none
    symmetric = _symmetric(matrix, UPLO.upper() == "L")
    scale = _scale(symmetric)
    more = _even(count) - count
    padded = torch.nn.functional.pad(symmetric / scale, (0, more, 0, more))
    turned, *vectors = _eigen_steps(padded, compute_v)
    middle = turned.diagonal(dim1=-2, dim2=-1)[..., :count]
    values, order = middle.sort(-1)
    values = values * scale.squeeze(-1)
    if not compute_v:
        return values, none
    found = vectors[0][..., :count, :count]
    return values, found.gather(-1, order.unsqueeze(-2).expand(found.shape))


def _singular_steps(matrix: Tensor, with_vectors: bool) -> list[Tensor]:
    """Orthogonal columns that span what the matrix does, and what turned the given into them."""
    count = matrix.shape[-1]
    half = count // 2

    def body(k: Step, matrix: Tensor, *vectors: Tensor) -> list[Tensor]:
        squares = (matrix * matrix).sum(-2)
        product = (matrix[..., :half] * matrix[..., half:]).sum(-2)
        turns = _turns(squares[..., :half], squares[..., half:], product)
        return [_turned(x, *turns) for x in (matrix, *vectors)]

    vectors = [_identity(matrix, count)] if with_vectors else []
    return steps(_meetings(count), body, [matrix, *vectors])


def _basis(columns: Tensor, full: bool) -> Tensor:
    """Unit vectors along orthogonal columns, the longest first; along nothing, any that fit."""
    rows, count = columns.shape[-2:]
    factor, weights = reflected(columns)
    width = rows if full else count
    whole = torch.eye(rows, width, dtype=columns.dtype).expand(*columns.shape[:-1], width)
    middle = factor.diagonal(dim1=-2, dim2=-1)
    signs = torch.where(middle < 0, -1.0, 1.0)
    signs = torch.nn.functional.pad(signs, (0, width - count), value=1.0)
    return applied(factor, weights, whole, False) * signs.unsqueeze(-2)


def _tall(matrix: Tensor, full: bool, with_vectors: bool) -> list[Tensor]:
    """Singular values of a matrix with no more columns than rows, and left and right vectors."""
    count = matrix.shape[-1]
    scale = _scale(matrix)
    padded = torch.nn.functional.pad(matrix / scale, (0, _even(count) - count))
    turned, *vectors = _singular_steps(padded, with_vectors)
    lengths = torch.linalg.vector_norm(turned[..., :count], dim=-2)
    values, order = lengths.sort(-1, descending=True)
    values = values * scale.squeeze(-1)
    if not with_vectors:
        return [values]
    along = order.unsqueeze(-2)
    columns, right = turned[..., :count], vectors[0][..., :count, :count]
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
    none = matrix.new_empty(0)
    if min(rows, columns) == 0:
        values = matrix.new_empty((*matrix.shape[:-2], 0))
        if not compute_uv:
            return none, values, none
        left, right = (n if full_matrices else 0 for n in (rows, columns))
        lead = matrix.shape[:-2]
        whole = torch.eye(rows, left, dtype=matrix.dtype).expand(*lead, rows, left)
        other = torch.eye(right, columns, dtype=matrix.dtype).expand(*lead, right, columns)
        return whole.clone(), values, other.clone()
    turned = rows < columns
    found = _tall(matrix.mT if turned else matrix, full_matrices, compute_uv)
    if not compute_uv:
        return none, found[0], none
    values, first, second = found
    return (second, values, first.mT) if turned else (first, values, second.mT)


def _kept(sizes: Tensor, atol: Tensor, rtol: Tensor) -> Tensor:
    """Which values count as more than zero."""
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
        kept = _kept(values.abs(), least, rtol)
        inverse = torch.where(kept, 1 / values, 0.0).unsqueeze(-2)
        return (vectors * inverse) @ vectors.mT
    left, values, right = linalg_svd(matrix)
    inverse = torch.where(_kept(values, least, rtol), 1 / values, 0.0).unsqueeze(-2)
    return (right.mT * inverse) @ left.mT
