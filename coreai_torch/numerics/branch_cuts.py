"""Widen the error of results next to a branch cut, where a rounding error turns π into -π.

A signal that is symmetric in exact arithmetic, such as the first frame of `stft`, has a spectrum
whose imaginary parts are rounding errors. Where the real part is negative, their sign decides
whether the angle is π or -π. Four of ten such elements have the same sign in all noisy runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .rounding import overload

_JUMP = 1.0  # the angle jumps by 2π, log10 by 2.7
_ANGLES = ("angle", "atan2", "arctan2")
_LOGARITHMS = ("log", "log2", "log10")


def has_cut(target: Any, base: Any) -> bool:
    """Return whether an op has a branch cut on the negative real axis."""
    name, _ = overload(target)
    if not isinstance(base, torch.Tensor):
        return False
    return name in _ANGLES or (name in _LOGARITHMS and base.is_complex())


def ends(
    call: Callable[[torch.Tensor], torch.Tensor],
    operand: torch.Tensor,
    reach: torch.Tensor,
    base: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results on both sides of the cut, and `base` for elements that do not reach it.

    `reach` is the error that each element of the operand, the imaginary part, may have.
    """
    reach = reach.nan_to_num(0.0, 0.0, 0.0)
    step = reach * 1j if operand.is_complex() else reach
    sides = [call((operand + s).to(operand.dtype)) for s in (step, -step)]
    crosses = (sides[0] - sides[1]).abs() > _JUMP
    return tuple(torch.where(crosses, side, base) for side in sides)
