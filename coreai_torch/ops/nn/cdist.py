"""Lower cdist and pdist from differences, written in torch."""

from __future__ import annotations

import torch

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten

_NORMS = (2.0, 0.0, 1.0, 1.5, float("inf"))


def _norm(difference: torch.Tensor, p: float) -> torch.Tensor:
    """Return the p-norm over the last axis.

    It uses differences: the expansion with matrix products loses small distances to cancellation.
    """
    magnitude = difference.abs()
    if p == 0:
        return (difference != 0).to(difference.dtype).sum(-1)
    if p == 1:
        return magnitude.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    if p == float("inf"):
        return magnitude.amax(-1)
    return (magnitude**p).sum(-1) ** (1 / p)


@decomposes(
    aten._cdist_forward.default,
    cases=[case(f32(4, 3), f32(5, 3), p, None) for p in _NORMS]
    + [case(f32(2, 4, 3), f32(1, 5, 3), 2.0, 1), case(f32(4, 3), f32(4, 3), 2.0, 2)],
)
def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@decomposes(
    aten._pdist_forward.default,
    cases=[case(f32(5, 3), p) for p in _NORMS] + [case(f32(1, 3), 2.0)],
)
def pdist(x: torch.Tensor, p: float = 2) -> torch.Tensor:
    # Computes all pairs, then selects: a gather of rows takes 40 times as long as a difference.
    count = x.shape[0]
    first, second = _pairs(count)
    return _norm(x.unsqueeze(-2) - x.unsqueeze(-3), p).flatten()[first * count + second]


def _pairs(count: int | torch.SymInt) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of all pairs, the smaller one first, in the order of torch.pdist.

    `triu_indices` fixes a dynamic size.
    """
    if isinstance(count, int):
        first, second = torch.triu_indices(count, count, 1)
        return first, second
    number = torch.arange(count * (count - 1) // 2)
    row = torch.arange(count)
    starts = row * (2 * count - row - 1) // 2  # number of the first pair of each row
    first = torch.searchsorted(starts, number, right=True) - 1
    first = first.clamp(max=count - 2)  # the last row has no pairs
    return first, number - starts[first] + first + 1
