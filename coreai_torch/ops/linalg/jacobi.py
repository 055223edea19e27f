"""Singular values of matrices with two or three columns, by rotations of pairs of columns.

They need fewer ops than divide and conquer: 5,000 matrices of 3 x 3 take 25 ms instead of 99 ms.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_COLUMNS = 3
_SWEEPS = 6  # over all pairs; the angles are rounding errors after 4 or 5


def singular_values(matrix: Tensor) -> Tensor:
    """Return descending singular values of matrices with a norm of about 1."""
    columns = list(matrix.mT.split(1, -2))
    count = len(columns)
    for _ in range(_SWEEPS if count > 2 else 2):
        for first in range(count - 1):
            for second in range(first + 1, count):
                columns[first], columns[second] = _rotated(columns[first], columns[second])
    squares = torch.cat([(c * c).sum(-1) for c in columns], -1)
    return squares.sqrt().sort(-1, descending=True).values


def _rotated(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Turn two columns by the angle that makes them orthogonal, at most 45 degrees."""
    sums = ((a * b).sum(-1, keepdim=True) for a, b in ((y, y), (x, x), (x, y)))
    above, below, product = sums
    difference, product = above - below, 2 * product
    length = (difference * difference + product * product).sqrt() + difference.abs()
    sign = 1 - 2 * (difference < 0).to(x.dtype)
    tangent = sign * product / length.clamp(min=1e-37)
    cosine = 1 / (tangent * tangent + 1).sqrt()
    return cosine * (x - tangent * y), cosine * (y + tangent * x)
