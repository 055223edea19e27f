"""Find results whose limits are too wide to judge them.

A limit as large as a value accepts any program. Where the model computes in float64, the program
computes in float32: torch has digits that the program loses, and a wide limit would hide the loss.
"""

from __future__ import annotations

import torch

from .compare import Allowed, largest, widen
from .rounding import unit

NARROWED = 1e-2  # of the largest value: the widest limit that narrowing to 32 bits may cause
WIDE = 0.5  # of the largest value, or of a value itself
_TYPICAL = 0.1  # of the largest value: a median limit that no small error justifies
_CLOSE = 1e-3  # of the largest value: an error that needs no limit, or 8 units of the dtype
_HIDDEN, _HIDDEN_PART = 0.1, 0.5  # share of the values, and of a slice such as a column
_AS_FAR = 4.0  # times torch's distance from the float64 result, for twice as many elements
_OUTLIERS = 0.05  # share of the values that may be further
_NEXT_TO_ZERO = 1e-36  # limits that subnormal numbers have


def is_suspect(want: torch.Tensor, allowed: Allowed) -> bool:
    """Return whether limits may be too wide: a fast test before those that need another run."""
    if not want.numel():
        return False
    if not _is_float(want):
        return allowed.ties is not None and bool(allowed.ties.any())
    limit = allowed.error.double().expand(want.shape)
    return bool((limit > NARROWED * largest(want)).any()) or bool(_hidden(limit, want).any())


def is_lost(got: torch.Tensor, want: torch.Tensor, allowed: Allowed, precise: Allowed) -> bool:
    """Return whether narrowing makes the limits too wide; `precise` has them without narrowing."""
    if not _is_float(want):
        lost = _ties(allowed, want) & ~_ties(precise, want)
        return float(lost.double().mean()) > _HIDDEN and bool((lost & (got != want)).any())
    limit, kept = (a.error.double().expand(want.shape) for a in (allowed, precise))
    limit = torch.where(kept <= limit / 2, limit, 0.0)
    scale = largest(want)
    if float(limit.max()) > NARROWED * scale:
        typical = float(limit.median())
        if typical > _TYPICAL * scale > 0 or _error(got, want).max() > _CLOSE * scale:
            return True
    hidden = _hidden(limit, want) & ~((want == 0) & (got == 0))
    return _hides(hidden)


def _hides(hidden: torch.Tensor) -> bool:
    """Return whether a tenth of all values are hidden, or most of a slice along one axis."""
    if float(hidden.double().mean()) > _HIDDEN:
        return True
    for axis in range(hidden.dim() if hidden.dim() > 1 else 0):
        rows = hidden.movedim(axis, 0).reshape(hidden.shape[axis], -1)
        if rows.shape[1] > 1 and float(rows.double().mean(1).max()) > _HIDDEN_PART:
            return True
    return False


def differs_visibly(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Return whether an error is so large that a limit as large as the result could decide."""
    if not _is_float(want) or not want.numel():
        return False
    return bool((_error(got, want) > _close(want) * largest(want)).any())


def decisive(got: torch.Tensor, want: torch.Tensor, allowed: Allowed) -> torch.Tensor:
    """Return the mask of the values that only a limit as large as the result accepts."""
    scale = largest(want)
    if not _is_float(want) or not scale:
        return torch.zeros(want.shape, dtype=torch.bool)
    limit = allowed.error.double().expand(want.shape)
    return (limit > WIDE * scale) & (_error(got, want) > _close(want) * scale)


def is_as_near(got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor, which: Allowed) -> bool:
    """Return whether the values with wide limits are as near to float64 as torch's, together.

    In half precision a single value may be far off by chance, so one in twenty may.
    """
    scale, beyond = largest(want), torch.finfo(want.dtype).max / 2
    wide = which.error.double().expand(want.shape) > WIDE * scale
    wide &= want.isfinite() & exact.isfinite() & (exact.abs() < beyond)
    far, torchs = ((widen(v) - widen(exact)).abs()[wide] for v in (got, want))
    far = far.nan_to_num(torch.inf, torch.inf).sort(descending=True).values
    torchs = torchs.sort(descending=True).values
    rank = torch.arange(len(far)) // 2
    further = far > _AS_FAR * torchs[rank] + _close(want) * scale
    return bool(further.sum() <= _OUTLIERS * want.numel())


def may_be_lost(want: torch.Tensor, allowed: Allowed, share: float) -> bool:
    """Return whether limits exceed this share of an intermediate result, or most of its values."""
    if not _is_float(want):
        return float(_ties(allowed, want).double().mean()) > _HIDDEN
    limit = allowed.error.double().expand(want.shape)
    scale = largest(want)
    if float(limit.max()) > max(share * scale, _NEXT_TO_ZERO):
        return True
    return _hides(_hidden(limit, want))


def _hidden(limit: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Return the mask of the values that are smaller than twice their limit."""
    wide = widen(want)  # torch has no isfinite of float8
    size = torch.where(wide.isfinite(), wide.abs(), torch.inf)
    return limit > (WIDE * size).clamp(min=_NEXT_TO_ZERO)


def _error(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Return the absolute errors; equal infinities and two NaN do not differ."""
    a, b = widen(got), widen(want)
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs()).nan_to_num(torch.inf, torch.inf)


def _close(want: torch.Tensor) -> float:
    return max(_CLOSE, 8 * unit(want.dtype))


def _ties(allowed: Allowed, want: torch.Tensor) -> torch.Tensor:
    return torch.zeros(want.shape, dtype=torch.bool) if allowed.ties is None else allowed.ties


def _is_float(want: torch.Tensor) -> bool:
    return bool(want.is_floating_point() or want.is_complex())
