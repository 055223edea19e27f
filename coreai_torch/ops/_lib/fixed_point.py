"""Torch's fixed-point interpolation of bytes.

The weights are computed in float64, rounded to integers of 16 bits, and each axis is rounded to
bytes. Torch's kernels agree on them, whatever the number of channels and the memory format.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from .constant_positions import multiply

Kernel: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
_WEIGHT_BITS = 15
_MOST_BITS = 22
_EXACT_IN_FLOAT32 = 1 << 24


@dataclass(frozen=True)
class Filter:
    """A kernel, the elements that it reaches on each side, and whether it widens with the step."""

    kernel: Kernel
    reach: int
    antialias: bool


@dataclass(frozen=True)
class ByteLine:
    """One axis to resize: its size, the output size, and the step between output positions."""

    extent: int
    out: int
    step: float
    align: bool

    def resize(self, x: Value, axis: int, how: Filter) -> Value:
        """Return bytes `x` resized along `axis`."""
        if self.extent == self.out:
            return x
        positions, weights = self._smooth(how) if how.antialias else self._sharp(how)
        bits = _precision(weights.max().item())
        scaled = weights * (1 << bits)
        scaled = torch.where(weights < 0, scaled - 0.5, scaled + 0.5).trunc()
        matrix = torch.zeros(self.out, self.extent, dtype=torch.float64)
        matrix.scatter_add_(1, positions.long(), scaled)
        sums = 255 * matrix.abs().sum(1).max().item() + (1 << bits)
        dtype = torch.float32 if sums < _EXACT_IN_FLOAT32 else torch.int32
        total = multiply(cai.cast(x, dtype), axis, matrix.to(dtype))
        return cai.cast(_rounded(total, bits), torch.uint8)

    def _numbers(self) -> torch.Tensor:
        return torch.arange(self.out, dtype=torch.float64)

    def _sharp(self, how: Filter) -> tuple[torch.Tensor, torch.Tensor]:
        """Return taps and weights; taps outside add their weights to the border."""
        places = self._numbers() * self.step
        if not self.align:
            places = (self._numbers() + 0.5) * self.step - 0.5
        if how.reach == 1:
            places = places.clamp(min=0)
        nearest = places.floor().clamp(max=self.extent - 1)
        fraction = (places - nearest).clamp(0, 1)
        start = (nearest - how.reach + 1).clamp(0, self.extent - 1)
        weights = torch.zeros(self.out, 2 * how.reach, dtype=torch.float64)
        for offset in range(1 - how.reach, how.reach + 1):
            tap = (nearest + offset).clamp(0, self.extent - 1) - start
            weight = how.kernel((offset - fraction).abs())
            weights.scatter_add_(1, tap.long()[:, None], weight[:, None])
        return self._from(start, 2 * how.reach), weights

    def _smooth(self, how: Filter) -> tuple[torch.Tensor, torch.Tensor]:
        """Return taps and weights; those of each position sum to 1."""
        widened = max(self.step, 1.0)
        support = how.reach * widened
        centres = (self._numbers() + 0.5) * self.step
        start = (centres - support + 0.5).trunc().clamp(min=0)
        end = (centres + support + 0.5).trunc().clamp(max=self.extent)
        taps = 2 * math.ceil(support) + 1
        wanted = torch.arange(taps) + start[:, None]
        offsets = (wanted - centres[:, None] + 0.5) * (1.0 / widened)
        weights = torch.where(wanted < end[:, None], how.kernel(offsets.abs()), 0.0)
        total = torch.zeros(self.out, dtype=torch.float64)
        for tap in range(taps):  # `sum` adds in another order
            total = total + weights[:, tap]
        return self._from(start, taps), weights / total[:, None]

    def _from(self, start: torch.Tensor, taps: int) -> torch.Tensor:
        return (start[:, None] + torch.arange(taps)).clamp(max=self.extent - 1)


def _rounded(total: Value, bits: int) -> Value:
    """Return a sum with a fraction of `bits` as bytes."""
    rounded = cai.add(total, cai.like(total, 1 << (bits - 1)))
    pixels = cai.floor_divide(rounded, cai.like(total, 1 << bits))
    return cai.minimum(cai.maximum(pixels, cai.like(pixels, 0)), cai.like(pixels, 255))


def _precision(greatest: float) -> int:
    """Return the most bits of a fraction with which the greatest weight fits."""
    for bits in range(_MOST_BITS):
        if int(0.5 + greatest * (1 << (bits + 1))) >= 1 << _WEIGHT_BITS:
            return bits
    return _MOST_BITS


def triangle(x: torch.Tensor) -> torch.Tensor:
    """Return the linear kernel for x >= 0."""
    return (1.0 - x).clamp(min=0)


def keys(a: float) -> Kernel:
    """Return Keys' cubic kernel for x >= 0."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        inner = ((a + 2) * x - (a + 3)) * x * x + 1
        outer = (((x - 5) * x + 8) * x - 4) * a
        return torch.where(x < 1, inner, torch.where(x < 2, outer, 0.0))

    return kernel
