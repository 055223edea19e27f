"""Bounds of dynamic sizes, as the exported graph declares them."""

from __future__ import annotations

from typing import Any

import torch


def upper_bound(size: Any) -> int | None:
    """Return the largest value of a size, or None if it has none."""
    if isinstance(size, int):
        return size
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    is_bounded = upper.is_finite and upper < torch.iinfo(torch.int32).max
    return int(upper) if is_bounded else None


def is_never_negative(size: Any) -> bool:
    """Return whether a size or a difference of sizes is known to be at least 0."""
    if isinstance(size, int):
        return size >= 0
    return bool(size.node.shape_env.bound_sympy(size.node.expr).lower >= 0)
