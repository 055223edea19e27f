"""Tolerances of the tests: the table of `coreai_torch.numerics`, and rows that replace some."""

from __future__ import annotations

import torch

from coreai_torch.numerics.tolerance import Table, Tolerance, limits

_SAME_BITS = Tolerance(0.0, "both sides round the same float32 number, so the bits are equal")
_ONE_STEP = Tolerance(2.0**-7, "one step between neighbors: two roundings of one number agree")

EXACT_FLOAT8: Table = {torch.float8_e4m3fn: _SAME_BITS, torch.float8_e5m2: _SAME_BITS}
BFLOAT16_STEP: Table = {torch.bfloat16: _ONE_STEP}


def pairs(overrides: Table | None = None) -> dict[torch.dtype, tuple[float, float]]:
    """Return (relative, absolute) limits for `torch.testing.assert_close`."""
    return {dtype: (limit, limit) for dtype, limit in limits(overrides).items()}
