"""Sums of equal terms, whose rounding errors all have the same sign.

Adding one number again and again rounds every partial sum in the same direction, so the error
grows with the number of terms rather than with its square root: 784 times 0.1 in float32, added
one after the other, is off by 60 units.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from ..ir.types import narrow
from .rounding import is_float, overload, unit

_SUMS = {"sum", "mean", "var", "std", "var_mean", "std_mean"}


def equal_terms_error(target: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the additional error of each row of the first operand, in units; None if none.

    The sizes of the reduced axes are 1, so that the result broadcasts to the operand.
    """
    given = next((a for a in args if isinstance(a, torch.Tensor)), None)
    if given is None or not is_float(given) or given.is_complex() or not given.numel():
        return None
    name, _ = overload(target)
    if name in _SUMS:
        axes = args[1] if len(args) > 1 and isinstance(args[1], list | tuple | int) else None
        return _error(given, _normalized(axes, given.dim()))
    if (axes := _pooled_axes(name)) and given.dim() > axes:
        planes = tuple(range(given.dim() - axes, given.dim()))
        window = math.prod(args[1])  # or the number of windows
        if "adaptive" in name:
            window = math.prod(given.shape[a] for a in planes) / max(1, window)
        return _error(given, planes, window)
    if name in ("native_layer_norm", "layer_norm"):
        return _error(given, tuple(range(given.dim() - len(args[1]), given.dim())))
    if name in ("native_group_norm", "group_norm", "instance_norm") and given.dim() > 1:
        groups = {"native_group_norm": 6, "group_norm": 1}.get(name)
        groups = given.shape[1] if groups is None else args[groups]
        rows = given.reshape(given.shape[0], groups, -1)
        error = _error(rows, (2,))
        if error is None:
            return None
        return error.expand(rows.shape).reshape(given.shape)
    return None


def _pooled_axes(name: str) -> int:
    """Return over how many of the last axes an op averages, or 0."""
    found = re.fullmatch(r"_?(?:adaptive_)?avg_pool([123])d", name)
    return int(found[1]) if found else 0


def _normalized(axes: Any, rank: int) -> tuple[int, ...]:
    if axes is None or axes == [] or axes == ():
        return tuple(range(rank))
    return tuple(a % rank for a in ([axes] if isinstance(axes, int) else axes)) if rank else ()


def _error(
    given: torch.Tensor, axes: tuple[int, ...], terms: float | None = None
) -> torch.Tensor | None:
    """Return the errors of the rows of equal values; `terms` of them, or all, are added up."""
    if not axes:
        return None
    count = math.prod(given.shape[a] for a in axes) if terms is None else terms
    wide = given.float()
    low, high = wide.amin(axes, keepdim=True), wide.amax(axes, keepdim=True)
    equal = (high - low) <= unit(torch.float32) * count * torch.maximum(low.abs(), high.abs())
    if count < 16 or not equal.any():
        return None
    steps = count / 8 * unit(torch.float32) / unit(narrow(given.dtype))
    return torch.where(equal, max(0.0, steps), 0.0)
