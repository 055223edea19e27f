"""Integers of torch that exceed 32 bits, which devices compute in."""

from __future__ import annotations

import torch

from ..formatting import counted
from ..ir.types import narrow


def beyond_32_bits(want: torch.Tensor) -> torch.Tensor | None:
    """Return the mask of the integers that do not fit into 32 bits, or None if all fit."""
    target = narrow(want.dtype)
    if target == want.dtype or want.is_floating_point() or want.is_complex():
        return None
    lost = want.to(target).to(want.dtype) != want
    return lost if bool(lost.any()) else None


def without_extremes(got: torch.Tensor, want: torch.Tensor, lost: torch.Tensor) -> torch.Tensor:
    """Return the mask of the integers that exceed 32 bits, without extremes of the dtype.

    The least number of int64 becomes that of int32: both are fillers that are below all others.
    """
    wide, short = torch.iinfo(want.dtype), torch.iinfo(narrow(want.dtype))
    least = (want == wide.min) & (got == short.min) & (wide.min < 0)
    return lost & ~least & ~((want == wide.max) & (got == short.max))


def describe(got: torch.Tensor, want: torch.Tensor, lost: torch.Tensor) -> str:
    """Say which integers exceed 32 bits."""
    at = tuple(int(i) for i in lost.nonzero()[0])
    exceeds = "exceeds" if int(lost.sum()) == 1 else "exceed"
    return (
        f"{counted(int(lost.sum()), 'element')} {exceeds} {str(narrow(want.dtype))[6:]}, which "
        f"replaces {str(want.dtype)[6:]} on devices (narrowing): at {list(at)} torch gives "
        f"{want[at].item()}, the program {got[at].item()}"
    )
