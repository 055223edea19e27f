"""Consecutive ranges of positions, given by their limits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def count_not_above(limits: Tensor, size: Any) -> Tensor:
    """Return for each position below `size` how many of `limits` are not greater than it.

    Args:
        limits: a vector of ascending positions, or several vectors along the last axis.
        size: the number of positions.

    Returns:
        An integer tensor with `size` instead of the last axis. It is a sum of marks: a binary
        search takes one pass over all positions for each halving of the limits.
    """
    marks = torch.zeros((*limits.shape[:-1], size + 1), dtype=torch.int32, device=limits.device)
    place = limits.clamp(max=size).to(torch.int64)
    ones = torch.ones_like(place, dtype=torch.int32)
    return marks.scatter_add(-1, place, ones).cumsum(-1, dtype=torch.int32)[..., :-1]
