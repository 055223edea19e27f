"""Eigenvalues and singular values of a matrix that is first reduced to two diagonals."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ...lowering import decomposes
from ...ops._lib.loops import Step, column, place, row, steps
from ...ops.linalg.eigh_svd import eigh, svd
from ...torch_compat import aten
from .divide_and_conquer import conquer, sign, sum_of_squares

_OUTSIDE = 2.0  # above all values of a scaled matrix


def _reflection(x: Tensor, at: Step) -> tuple[Tensor, Tensor]:
    """Return vector and weight of the reflection that zeroes `x` but at `at`."""
    largest = x.abs().amax(-1, keepdim=True)
    x = x / largest.clamp(min=1e-30)
    first = x.index_select(-1, place(at))
    norm = sum_of_squares(x).unsqueeze(-1).sqrt()
    here = (torch.arange(x.shape[-1]) == at).to(x.dtype)
    vector = x + here * (norm * sign(first < 0, x.dtype))
    return vector, 1 / (norm * (norm + first.abs())).clamp(min=1e-36)


def _reflect(vector: Tensor, weight: Tensor, basis: Tensor) -> Tensor:
    """Return `(1 - weight * vector * vectorᵀ) @ basis`."""
    return basis - (weight * vector).unsqueeze(-1) * (vector.unsqueeze(-2) @ basis)


def _identity(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape)


def _tridiagonal(matrix: Tensor, with_basis: bool) -> list[Tensor]:
    """Return a tridiagonal matrix similar to a symmetric one, and the transposed basis."""
    count = matrix.shape[-1]

    def body(k: Step, matrix: Tensor, *basis: Tensor) -> list[Tensor]:
        given = row(matrix, k) * (torch.arange(count) > k).to(matrix.dtype)
        vector, weight = _reflection(given, k + 1)
        products = weight * (vector.unsqueeze(-2) @ matrix).squeeze(-2)
        share = weight * (products * vector).sum(-1, keepdim=True) / 2
        other = products - share * vector
        change = vector.unsqueeze(-1) * other.unsqueeze(-2)
        change = change + other.unsqueeze(-1) * vector.unsqueeze(-2)
        return [matrix - change, *(_reflect(vector, weight, b) for b in basis)]

    basis = [_identity(matrix)] if with_basis else []
    return steps(max(count - 2, 0), body, [matrix, *basis])


def _bidiagonal(matrix: Tensor, with_basis: bool) -> list[Tensor]:
    """Return `left @ matrix @ right`, which is upper bidiagonal, and the orthogonal `left`."""
    count = matrix.shape[-1]

    def body(k: Step, matrix: Tensor, *basis: Tensor) -> list[Tensor]:
        positions = torch.arange(count)
        down, weight = _reflection(column(matrix, k) * (positions >= k).to(matrix.dtype), k)
        products = weight * (down.unsqueeze(-2) @ matrix).squeeze(-2)
        given = row(matrix, k) - down.index_select(-1, place(k)) * products
        across, other_weight = _reflection(given * (positions > k).to(matrix.dtype), k + 1)
        # A product with a column takes the runtime three times as long as this sum.
        sums = (matrix * across.unsqueeze(-2)).sum(-1)
        sums = other_weight * (sums - down * (products * across).sum(-1, keepdim=True))
        matrix = matrix - down.unsqueeze(-1) * products.unsqueeze(-2)
        matrix = matrix - sums.unsqueeze(-1) * across.unsqueeze(-2)
        return [matrix, *(_reflect(down, weight, b) for b in basis)]

    basis = [_identity(matrix)] if with_basis else []
    return steps(count - 1, body, [matrix, *basis])


def _padding(count: int) -> int:
    """Return the number of elements up to the next power of two."""
    return (1 << (count - 1).bit_length()) - count


def _select(values: Tensor, rows: Tensor, count: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the values without the padding in order, and the vectors if they have all rows."""
    values, order = values.sort(-1)
    values, order = values[..., :count], order[..., :count]
    if descending:
        values, order = values.flip(-1), order.flip(-1)
    rows = rows[..., :count, :]
    return values, rows.gather(-1, order.unsqueeze(-2).expand(*rows.shape[:-1], count))


def _eigen(matrix: Tensor, with_vectors: bool) -> list[Tensor]:
    """Return ascending eigenvalues of a symmetric matrix, and the eigenvectors if requested."""
    count = matrix.shape[-1]
    matrix, *basis = _tridiagonal(matrix, with_vectors)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    beside = functional.pad(matrix.diagonal(1, dim1=-2, dim2=-1), (1, 0))
    sizes = beside.abs()
    bound = (diagonal.abs() + sizes + _before(sizes)).amax(-1, keepdim=True)
    safe = bound.clamp(min=1e-30)
    missing = _padding(count)
    sizes = functional.pad(sizes / safe, (0, missing))
    diagonal = functional.pad(diagonal / safe, (0, missing), value=_OUTSIDE)
    roots = sizes.sqrt()
    signs = functional.pad(sign(beside < 0, matrix.dtype), (0, missing))
    values = diagonal - sizes - _before(sizes)
    values, rows = conquer(values, roots, signs * roots, False, with_vectors)
    values, rows = _select(values, rows, count, False)
    return [values * bound, *(b.mT @ rows for b in basis)]


def _before(x: Tensor) -> Tensor:
    """Move all elements forward by one position; the last becomes zero."""
    return functional.pad(x[..., 1:], (0, 1))


def _left_singular(matrix: Tensor, with_vectors: bool) -> list[Tensor]:
    """Return descending singular values of a square matrix, and the left vectors if requested."""
    count = matrix.shape[-1]
    matrix, *basis = _bidiagonal(matrix, with_vectors)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    above = functional.pad(matrix.diagonal(1, dim1=-2, dim2=-1), (1, 0))
    bound = (diagonal.abs() + above.abs()).amax(-1, keepdim=True)
    safe = bound.clamp(min=1e-30)
    missing = _padding(count)
    diagonal = functional.pad(diagonal / safe, (0, missing), value=_OUTSIDE)
    above = functional.pad(above / safe, (0, missing))
    # The product with the transpose is a sum over the columns; the first has one element.
    first = torch.arange(count + missing) == 0
    values = diagonal.abs() * first.to(matrix.dtype)
    values, rows = conquer(values, above, diagonal, True, with_vectors)
    values, rows = _select(values, rows, count, True)
    return [values * bound, *(b.mT @ rows for b in basis)]


@decomposes(
    aten._linalg_eigh.default,
    target="linux",
    reason="values of 256 x 256 take 11 s with rotations, 0.03 by divide and conquer",
)
def linalg_eigh(
    matrix: Tensor,
    UPLO: str = "L",  # noqa: N803  the schema's name
    compute_v: bool = True,
) -> tuple[Tensor, Tensor]:
    return eigh(matrix, UPLO, compute_v, _eigen)


def _singular(lower: Tensor, with_vectors: bool) -> list[Tensor]:
    values, *left = _left_singular(lower.mT, with_vectors)
    return [values, *(part for basis in left for part in (lower @ basis, basis))]


@decomposes(
    aten._linalg_svd.default,
    target="linux",
    reason="values of 256 x 256 take 4.5 s with rotations, 0.07 by divide and conquer",
)
def linalg_svd(
    matrix: Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return svd(matrix, full_matrices, compute_uv, _singular)
