"""Keys and values in 8 bits, each row with a scale in two more columns.

A row is the key or value of one token and head. Its scale follows from the row alone, so rows of
other tokens never change it. `stored = fraction / 127 * 2 ** exponent` is at least the largest
absolute value of the row divided by 127; both numbers are 8-bit integers, and the row's elements
are rounded to multiples of it. An element therefore differs by at most 1/250 of the row's largest
one. The states stay two, and stay of rank 5, which the engine requires.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConversionError

COLUMNS = 2  # of each row, for its scale
# A flipped rounding changes an element by 1/127 of its row; two runs differ in some of them.
LIMIT = 2e-2
_MOST = 127
_LEAST = 1e-30  # the smallest scale, for rows of zeros


def pack_rows(rows: Tensor) -> Tensor:
    """Return rows `[..., width]` as int8 `[..., width + 2]`."""
    numbers = rows.float()
    scale = numbers.abs().amax(-1, keepdim=True).clamp(min=_LEAST) / _MOST
    exponent = torch.log2(scale).ceil()
    fraction = (scale * torch.exp2(-exponent) * _MOST).ceil().clamp(1, _MOST)
    integers = (numbers / _scale(fraction, exponent)).round().clamp(-_MOST, _MOST)
    return torch.cat([integers, fraction, exponent], -1).to(torch.int8)


def unpack_rows(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the rows that `pack_rows` stored, in a dtype."""
    numbers = packed.float()
    width = packed.shape[-1] - COLUMNS
    scale = _scale(numbers[..., width : width + 1], numbers[..., width + 1 :])
    return (numbers[..., :width] * scale).to(dtype)


def _scale(fraction: Tensor, exponent: Tensor) -> Tensor:
    return fraction * torch.exp2(exponent) / _MOST


def check_cache(kv_cache: str, kind: str) -> None:
    """Raise unless a bundle may store keys and values so; `kind` names one that is not dynamic."""
    if kv_cache not in ("float", "int8"):
        raise ConversionError(f"unknown kv_cache {kv_cache!r}\n  try   pass 'float' or 'int8'")
    if kv_cache == "int8" and kind:
        raise ConversionError(
            f"the engine of {kind} bundles cannot run an int8 cache: its caches are floats\n"
            "  try   pass kv_cache='float', and compression='4bit' for a smaller bundle"
        )
