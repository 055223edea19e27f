"""Divide and conquer: diagonalize by updates of rank one, log2(n) levels of batched updates.

The eigenvalues of `diag(poles) + z @ zᵀ` are the roots of `1 + Σ z_j² / (poles_j - λ)`, one between
each pole and the next. A root is stored as its distance from the nearer pole, so that all
differences `poles_j - λ` have a small relative error; the vectors of the `z` that has exactly these
roots are then orthogonal (Gu and Eisenstat, 1995). LAPACK deflates equal poles and small elements
of `z`. Here they move by less than the rounding error of a matrix with a norm of about 1.

Matrices have a row for each pole and a column for each root. Only vectors are compared, selected or
concatenated: that takes the runtime 20 to 100 times as long per element as arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...ops._lib.loops import Step, steps

_LEAST_WEIGHT = 3e-9  # of an element of z
_LEAST_GAP = {False: 1e-11, True: 1e-9}  # of poles; squared ones must not underflow
_HALVINGS = 20  # of the logarithm of a bracket, from a factor of at most 2^120 to 1.0001
_HALVINGS_PER_STEP = 4  # a step of a loop costs as much as half a halving of a small matrix
_GROUP = 32

Poles = tuple[Tensor, Tensor]  # the exact pole is the sum


def conquer(
    values: Tensor, left: Tensor, right: Tensor, squared: bool, with_vectors: bool
) -> tuple[Tensor, Tensor]:
    """Diagonalize `diag(values) + Σ z_k @ z_kᵀ`, where `z_k` is `left_k, right_k` at k - 1 and k.

    Return the eigenvalues and the vectors, or only their first and last rows. The number of values
    must be a power of two. If `squared`, values and results are square roots.
    """
    count, size = values.shape[-1], 1
    values = values.unsqueeze(-1)
    rows = torch.ones_like(values).unsqueeze(-1)
    rows = rows if with_vectors else torch.cat([rows, rows], -2)
    while size < count:
        pairs = count // size // 2
        rows = rows.unflatten(-3, (pairs, 2))
        lower, upper = (
            x.unflatten(-1, (pairs, 2 * size))[..., size : size + 1] for x in (left, right)
        )
        vector = torch.cat([rows[..., 0, -1, :] * lower, rows[..., 1, 0, :] * upper], -1)
        values, mixing = _update(values.reshape(vector.shape), vector, squared)
        rows = rows @ mixing.unflatten(-2, (2, size))
        if with_vectors:
            rows = rows.flatten(-3, -2)
        else:
            rows = torch.cat([rows[..., 0, :1, :], rows[..., 1, 1:, :]], -2)
        size *= 2
    return values.squeeze(-2), rows.squeeze(-3)


def _update(values: Tensor, vector: Tensor, squared: bool) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of `diag(values) + vector @ vectorᵀ`, and its vectors as columns."""
    poles, order = values.sort(-1)
    roots, vectors = _diagonalize(poles, vector.gather(-1, order), squared)
    rank = order.argsort(-1).unsqueeze(-1)
    return roots, vectors.gather(-2, rank.expand(vectors.shape))


def _diagonalize(poles: Tensor, vector: Tensor, squared: bool) -> tuple[Tensor, Tensor]:
    """Do the same for ascending poles."""
    count = poles.shape[-1]
    sizes = vector.abs().clamp(min=_LEAST_WEIGHT)
    weights = (sizes * sizes).unsqueeze(-2)
    total = weights.sum(-1)
    offsets = (torch.arange(count, dtype=poles.dtype) * _LEAST_GAP[squared]).expand(poles.shape)
    here, after = (poles, offsets), (_following(poles), _following(offsets))
    is_last = torch.arange(count) == count - 1
    gaps = torch.where(is_last, total, _differences(after, here, squared))
    across = poles.unsqueeze(-1), offsets.unsqueeze(-1)
    from_pole = _differences(across, _as_row(here), squared)
    is_upper = (_secular(from_pole, gaps / 2, weights) < 0) & ~is_last
    side = sign(is_upper, poles.dtype)
    nearest = torch.where(is_upper, after[0], poles), torch.where(is_upper, after[1], offsets)
    weight = torch.where(is_upper, _following(sizes), sizes)
    low = weight * weight * (gaps / (gaps + 2 * total)) / 2
    high = torch.where(is_last, gaps, gaps / 2)
    differences = _differences(across, _as_row(nearest), squared)
    distance = side * _root(differences, side, weights, low, high)
    from_root = differences - distance.unsqueeze(-2)
    # Exactly these roots belong to another vector, which differs by rounding errors.
    ratios = from_root / (from_pole - torch.eye(count, dtype=poles.dtype))
    exact = ratios.prod(-1).abs().sqrt() * sign(vector < 0, vector.dtype)
    vectors = exact.unsqueeze(-1) * (distance.unsqueeze(-2) / from_root)
    vectors = vectors / sum_of_squares(vectors.mT).sqrt().unsqueeze(-2)
    return _move(nearest, distance, squared) - offsets, vectors


def sign(is_negative: Tensor, dtype: torch.dtype) -> Tensor:
    """Return -1 where the condition holds, else 1; `where` takes a dynamic size 3 times as long."""
    return 1 - 2 * is_negative.to(dtype)


def sum_of_squares(x: Tensor) -> Tensor:
    """Return sums over the last axis in groups; the runtime adds one element after the other."""
    squares, count = x * x, x.shape[-1]
    if count > _GROUP:
        squares = torch.nn.functional.pad(squares, (0, -count % _GROUP))
        squares = squares.unflatten(-1, (-(-count // _GROUP), _GROUP)).sum(-1)
    return squares.sum(-1)


def _following(x: Tensor) -> Tensor:
    """Return the next element of each, and the last one again."""
    return torch.cat([x[..., 1:], x[..., -1:]], -1)


def _as_row(poles: Poles) -> Poles:
    return poles[0].unsqueeze(-2), poles[1].unsqueeze(-2)


def _differences(first: Poles, second: Poles, squared: bool) -> Tensor:
    """Return the differences of poles, or of their squares, with a small relative error."""
    difference = (first[0] - second[0]) + (first[1] - second[1])
    if not squared:
        return difference
    return difference * ((first[0] + second[0]) + (first[1] + second[1]))


def _move(poles: Poles, distance: Tensor, squared: bool) -> Tensor:
    """Add the distance to each pole, or to its square."""
    if not squared:
        return poles[0] + (poles[1] + distance)
    pole = poles[0] + poles[1]
    return pole + distance / (pole + (pole * pole + distance).sqrt())


def _secular(differences: Tensor, distance: Tensor, weights: Tensor) -> Tensor:
    return 1 + (weights @ (1 / (differences - distance.unsqueeze(-2)))).squeeze(-2)


def _root(differences: Tensor, side: Tensor, weights: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the distance of each root from its pole, between `low` and `high`.

    The root lies on the side 1 or -1 of the pole, and the secular function is
    `1 + side * Σ weights / (side * differences - distance)`.
    """
    opposite = -side.unsqueeze(-2)
    signed = differences * side.unsqueeze(-2)

    def halve(k: Step, low: Tensor, ratio: Tensor, *given: Tensor) -> list[Tensor]:
        signed, opposite, weights = given
        for _ in range(_HALVINGS_PER_STEP):
            ratio = ratio.sqrt()
            middle = low * ratio
            is_low = opposite > weights @ (1 / (signed - middle))
            # The runtime takes 3 times as long to select as to compute this.
            low = torch.maximum(low, middle * is_low.to(low.dtype))
        return [low, ratio]

    count = _HALVINGS // _HALVINGS_PER_STEP
    bracket = [low.unsqueeze(-2), (high / low).unsqueeze(-2)]
    low, ratio = steps(count, halve, bracket, [signed, opposite, weights])
    # One Newton step for the product with the distance, which is nearly linear.
    shares = 1 / (signed - low)
    value = weights @ shares - opposite
    slope = weights @ (shares * (shares * low))
    change = 1 - value / (value + slope)
    # Rounding errors of the sums may lead beyond the next pole if poles nearly coincide.
    return (low * torch.minimum(change.clamp(min=1.0), ratio)).squeeze(-2)
