"""Diagonalize by Jacobi's rotations of pairs of columns.

A round turns disjoint pairs, those whose numbers have the same sum modulo n, all at once: it is a
product with a permutation. After n rounds, a sweep, each pair was turned. Angles converge
quadratically, also if values are equal; a sweep without an angle worth turning ends the iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...torch_compat import while_loop_op
from .._lib.loops import copied

_SWEEPS = 30  # usually 5 to 10 suffice
_NEGLIGIBLE = 5e-7  # product of two columns, compared with their lengths or with the matrix
_LEAST_SQUARE = 1e-15  # of a column, compared with the matrix, that is not a rounding error

Turn = Callable[..., tuple[Tensor, Sequence[Tensor]]]


def _pairs(k: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Return the symmetric matrix that has 1 for each pair of a round."""
    here = torch.arange(count)
    sums = (here + here.unsqueeze(-1)) % count
    return ((sums == k % count) & (here != here.unsqueeze(-1))).to(dtype)


@dataclass(frozen=True)
class _Rotation:
    """The angle of each column, `[..., 1, n]`, whose pairs it makes orthogonal."""

    sine: Tensor
    half: Tensor  # the tangent of half the angle
    pairs: Tensor

    @classmethod
    def of(cls, own: Tensor, product: Tensor, pairs: Tensor) -> _Rotation:
        """Return the angles for the squares of all columns and their products with partners."""
        here = torch.arange(pairs.shape[-1], dtype=pairs.dtype)
        difference, product = own @ pairs - own, 2 * product
        size = torch.maximum(difference.abs(), product.abs())
        size = torch.where(size == 0, 1.0, size)  # the squares of both may be zero
        difference, product = difference / size, product / size
        length = (difference * difference + product * product).sqrt() + difference.abs()
        # Of two equal columns, one turns forwards and the other backwards.
        is_back = torch.where(difference == 0, here @ pairs > here, difference < 0)
        tangent = torch.where(is_back, -product, product) / length.clamp(min=1)
        half = tangent / (1 + (1 + tangent * tangent).sqrt())
        return cls(2 * half / (1 + half * half), half, pairs)

    def turn(self, x: Tensor) -> Tensor:
        """Turn the columns of a matrix.

        `cos` is `1 - sin * tan(angle / 2)`. Computed as one number, it is 1 for an angle of 1e-4,
        and 2,000 rounds made columns longer by 5e-5.
        """
        return x - self.sine * (x @ self.pairs + self.half * x)


def _identity(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype)


def _until_quiet(turn: Turn, state: Sequence[Tensor]) -> list[Tensor]:
    """Run rounds until no matrix has turned for a sweep; one that still turns becomes NaN."""
    first = state[0]
    count = first.shape[-1]
    if count == 1:
        return list(state)

    def goes_on(k: Tensor, quiet: Tensor, *_: Tensor) -> Tensor:
        return (k < _SWEEPS * count) & (quiet < count).any()

    def body(k: Tensor, quiet: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        sizes, turned = turn(_pairs(k, count, first.dtype), *state)
        is_turned = (sizes > _NEGLIGIBLE).any(-1, keepdim=True)
        return k + 1, torch.where(is_turned, 0.0, quiet + 1), *map(copied, turned)

    start = torch.zeros((), dtype=torch.int64), torch.zeros_like(first[..., :1, :1])
    _, quiet, *state = while_loop_op(goes_on, body, (*start, *map(copied, state)), ())
    failure = torch.where(quiet < count, float("nan"), 0.0)
    return [x + failure for x in state]


def eigenvectors(matrix: Tensor) -> Tensor:
    """Return the eigenvectors of a symmetric matrix with a norm of about 1 as columns."""

    def turn(pairs: Tensor, matrix: Tensor, basis: Tensor) -> tuple[Tensor, list[Tensor]]:
        own = (matrix * _identity(matrix)).sum(-2, keepdim=True)
        product = (matrix * pairs).sum(-2, keepdim=True)
        product = (product + product @ pairs) / 2  # rounding errors differ by the side
        rotation = _Rotation.of(own, product, pairs)
        matrix = rotation.turn(rotation.turn(matrix).mT)
        return product.abs(), [matrix, rotation.turn(basis)]

    return _until_quiet(turn, [matrix, _identity(matrix).expand(matrix.shape)])[1]


def orthogonal_columns(matrix: Tensor, *others: Tensor) -> list[Tensor]:
    """Turn the columns of a matrix with a norm of about 1, and of others, until orthogonal."""

    def turn(pairs: Tensor, *state: Tensor) -> tuple[Tensor, list[Tensor]]:
        matrix = state[0]
        own = (matrix * matrix).sum(-2, keepdim=True)
        other = own @ pairs
        product = (matrix * (matrix @ pairs)).sum(-2, keepdim=True)
        is_zero = torch.minimum(own, other) < _LEAST_SQUARE
        sizes = torch.where(is_zero, 0.0, product.abs() / (own * other).sqrt())
        rotation = _Rotation.of(own, product, pairs)
        return sizes, [rotation.turn(x) for x in state]

    return _until_quiet(turn, [matrix, *others])
