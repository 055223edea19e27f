"""Data-free compression schemes: integers, narrow floats, palettes.

A weight is processed in slices of its first axis, so that no second full copy exists. Values that
all slices need (a table, a threshold) are computed first.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .memory import LARGE, release_freed_memory
from .modules import PalettizeModule, WeightDequantizeModule
from .packing import packed_size
from .palettes import nearest, palette
from .scalars import FLOAT4, SCALES_OF_TWO, Integers

Parts = dict[str, Tensor]

# Elements of a weight that are processed at a time.
SLICE = 1 << 20


@dataclass(frozen=True)
class Layout:
    """Shape of a weight, its output axis, and the axis that is cut into blocks.

    The first axis of a stacked weight counts weights that are compressed on their own.
    """

    shape: tuple[int, ...]
    channel: int
    across: int
    block: int | None
    stacked: bool = False

    @property
    def blocks(self) -> list[int]:
        """Return the number of blocks of each axis: one for each output, times the blocks."""
        counts = [1] * len(self.shape)
        counts[self.channel] = self.shape[self.channel]
        if self.stacked:
            counts[0] = self.shape[0]
        if self.block is not None:
            counts[self.across] = self.shape[self.across] // self.block
        return counts

    def indivisible(self) -> str | None:
        """Return why the axis cannot be cut into blocks, or None."""
        size = self.shape[self.across]
        if self.block is None or size % self.block == 0:
            return None
        return f"indivisible: {size} on axis {self.across} in blocks of {self.block}"


class Scheme(ABC):
    """A compression scheme; `compress` finds it by its name."""

    name: str
    block: int | None  # default of `block_size`
    takes_block = True

    def skip_reason(self, layout: Layout) -> str | None:
        """Return why a weight of this layout cannot be compressed, or None."""
        return layout.indivisible()

    def step(self, layout: Layout) -> int:
        """Return a row count; the rows of each slice must be a multiple of it."""
        return 1 if layout.stacked or layout.channel == 0 else layout.shape[0]

    def shared(self, weight: Tensor, layout: Layout) -> Parts:
        """Return the values that all slices need."""
        return {}

    @abstractmethod
    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        """Compress some rows (float32) into parts that are concatenated along the first axis."""

    @abstractmethod
    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        """Return the layer that computes the weight."""

    @abstractmethod
    def bytes(self, parts: Parts) -> int:
        """Return the number of bytes of the parts in a converted program."""


def _split(x: Tensor, blocks: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Reshape each axis to [blocks, size of a block]; also return the axes within the blocks."""
    sizes = [n for size, count in zip(x.shape, blocks, strict=True) for n in (count, size // count)]
    return x.reshape(sizes), list(range(1, len(sizes), 2))


def _rows(layout: Layout, rows: int) -> Layout:
    return replace(layout, shape=(rows, *layout.shape[1:]))


def nbytes(*tensors: Tensor | None) -> int:
    """Return the number of bytes of tensors."""
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def _storable_scale(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to the stored dtype; replace 0, the scale of a block of zeros, by 1."""
    stored = scale.to(dtype).float()
    return torch.where(stored == 0, 1.0, stored)


def _best(
    blocked: Tensor, axes: list[int], candidates: Iterator[tuple[Any, Callable[[], Tensor]]]
) -> list[Any]:
    """Select for each block the candidate parameters with the least squared error."""
    best: list[Tensor] = []
    least: Tensor | None = None
    for parameters, dense in candidates:
        error = dense().sub_(blocked).square_().sum(axes, keepdim=True)
        if least is None:
            best, least = list(parameters), error
            continue
        better = error < least
        least = torch.where(better, error, least)
        best = [torch.where(better, new, old) for new, old in zip(parameters, best, strict=True)]
    return best


# Factors by which the range is shrunk in search of the least error: few bits favour clipping.
_SHRINK_FACTORS = {
    8: (1.0,),
    6: (1.0, 0.9),
    4: (1.0, 0.93, 0.87, 0.8, 0.73),
    3: (1.0, 0.9, 0.8, 0.7, 0.6),
    2: (1.0, 0.85, 0.7, 0.6, 0.5, 0.4),
}


@dataclass(frozen=True)
class IntegerScheme(Scheme):
    """Integers with a scale for each block; unsigned integers also have a zero point."""

    numbers: Integers
    block = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.numbers.name

    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        blocks = _rows(layout, weight.shape[0]).blocks
        blocked, axes = _split(weight, blocks)
        low, high = blocked.amin(axes, keepdim=True), blocked.amax(axes, keepdim=True)
        scale, zero = _best(blocked, axes, self._candidates(blocked, low, high, dtype))
        data = self._quantize(blocked, scale, zero).reshape(weight.shape).to(self.numbers.container)
        parts = {"data": data, "scale": scale.reshape(blocks).to(dtype)}
        if not self.numbers.signed:
            parts["zero_point"] = zero.reshape(blocks).to(torch.uint8)
        return parts

    def _quantize(self, blocked: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        shifted = (blocked / scale).round_()
        if not self.numbers.signed:
            shifted.add_(zero)
        return shifted.clamp_(self.numbers.low, self.numbers.high)

    def _dequantize(self, data: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return (data if self.numbers.signed else data.sub_(zero)).mul_(scale)

    def _candidates(
        self, blocked: Tensor, low: Tensor, high: Tensor, dtype: torch.dtype
    ) -> Iterator[tuple[Any, Callable[[], Tensor]]]:
        for factor in _SHRINK_FACTORS[self.numbers.bits]:
            if self.numbers.signed:
                most = torch.maximum(high, -low) * factor
                scale = _storable_scale(most / self.numbers.high, dtype)
                zero = torch.zeros_like(scale)
            else:
                least, most = low.clamp(max=0) * factor, high.clamp(min=0) * factor
                scale = _storable_scale((most - least) / self.numbers.high, dtype)
                zero = torch.round(-least / scale).clamp_(0, self.numbers.high)

            def dense(scale: Tensor = scale, zero: Tensor = zero) -> Tensor:
                return self._dequantize(self._quantize(blocked, scale, zero), scale, zero)

            yield (scale, zero), dense

    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        named: torch.dtype = getattr(torch, self.name)
        return WeightDequantizeModule(
            parts["data"], parts["scale"], parts.get("zero_point"), input_dtype=named
        )

    def bytes(self, parts: Parts) -> int:
        bits, zero = self.numbers.bits, parts.get("zero_point")
        size = packed_size(parts["data"].numel(), bits) + nbytes(parts["scale"])
        if zero is None:
            return size
        return size + packed_size(zero.numel(), bits if bits in (2, 4) else 8)


@dataclass(frozen=True)
class Float8Scheme(Scheme):
    """8-bit floats with a scale for each block that maps its largest number to the maximum."""

    name: str
    element: torch.dtype
    block = None

    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        blocks = _rows(layout, weight.shape[0]).blocks
        blocked, axes = _split(weight, blocks)
        most = torch.finfo(self.element).max
        scale = _storable_scale(blocked.abs().amax(axes, keepdim=True) / most, dtype)
        data = (blocked / scale).clamp_(-most, most).to(self.element).reshape(weight.shape)
        return {"data": data, "scale": scale.reshape(blocks).to(dtype)}

    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        return WeightDequantizeModule(parts["data"], parts["scale"], output_dtype=dtype)

    def bytes(self, parts: Parts) -> int:
        return nbytes(parts["data"], parts["scale"])


@dataclass(frozen=True)
class Float4Scheme(Scheme):
    """4-bit floats, two to a byte, with a power-of-two scale for each block: the MX format."""

    name: str = "fp4"
    block = 32

    def skip_reason(self, layout: Layout) -> str | None:
        if layout.shape[-1] % 2:
            return f"indivisible: {layout.shape[-1]} on the last axis, but two share a byte"
        return layout.indivisible()

    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        blocks = _rows(layout, weight.shape[0]).blocks
        blocked, axes = _split(weight, blocks)
        # Scales the largest number of a block to between 4 and 8; the largest 4-bit float is 6.
        exponent = torch.frexp(blocked.abs().amax(axes, keepdim=True))[1] - 3

        def candidates() -> Iterator[tuple[Any, Callable[[], Tensor]]]:
            for shift in (0, 1):  # with the next power of two the largest number is not clipped
                power = (exponent + shift).clamp(-126, 127)
                scale = torch.ldexp(torch.ones(power.shape), power)

                def dense(scale: Tensor = scale) -> Tensor:
                    return _float4(blocked / scale) * scale

                yield (scale,), dense

        (scale,) = _best(blocked, axes, candidates())
        codes = _float4_codes(_float4(blocked / scale)).reshape(weight.shape)
        data = codes[..., 0::2] | (codes[..., 1::2] << 4)
        return {"data": data, "scale": scale.reshape(blocks).to(SCALES_OF_TWO)}

    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        return WeightDequantizeModule(
            parts["data"], parts["scale"], input_dtype=FLOAT4, output_dtype=dtype
        )

    def bytes(self, parts: Parts) -> int:
        return nbytes(parts["data"], parts["scale"])


def _float4(x: Tensor) -> Tensor:
    """Round to 4-bit floats: steps of 0.5 up to 2, of 1 up to 4, of 2 up to 6."""
    size = x.abs()
    found = torch.where(size < 2, (size * 2).round_() / 2, size.round())
    found = torch.where(size < 4, found, (size / 2).round_() * 2).clamp_(max=6)
    return found.copysign_(x)


def _float4_codes(x: Tensor) -> Tensor:
    """Return the codes of 4-bit floats: they ascend with the magnitude, bit 3 is the sign."""
    size = x.abs()
    codes = torch.where(size < 2, size * 2, torch.where(size < 4, size + 2, size / 2 + 4))
    return (codes + 8 * torch.signbit(x)).to(torch.uint8)


@dataclass(frozen=True)
class PaletteScheme(Scheme):
    """Indices into a k-means table, one for the weight or one for each group of outputs."""

    bits: int
    block = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"palettize{self.bits}"

    def skip_reason(self, layout: Layout) -> str | None:
        outputs = layout.shape[layout.channel]
        if layout.block is not None and outputs % layout.block:
            return f"indivisible: {outputs} outputs in groups of {layout.block}"
        if math.prod(layout.shape) < 8 * 2**self.bits:
            return f"too small for a table of {2**self.bits} entries"
        return None

    def step(self, layout: Layout) -> int:
        return (layout.block or 1) if layout.channel == 0 else layout.shape[0]

    def shared(self, weight: Tensor, layout: Layout) -> Parts:
        if layout.block is not None:
            return {}
        table = palette(weight.flatten(), 2**self.bits)
        return {"lut": table.reshape(*[1] * weight.dim(), -1, 1)}

    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        if "lut" in shared:
            table = shared["lut"].to(dtype).float().flatten()
            return {"indices": nearest(weight, table)}
        axis, group = layout.channel, layout.block
        assert group is not None
        groups = weight.split(group, axis)
        tables = [palette(part.flatten(), 2**self.bits).to(dtype) for part in groups]
        indices = [nearest(p, t.float()) for p, t in zip(groups, tables, strict=True)]
        shape = [1] * weight.dim()
        shape[axis] = len(groups)
        lut = torch.stack(tables).reshape(*shape, -1, 1)
        return {"indices": torch.cat(indices, axis), "lut": lut}

    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        return PalettizeModule(parts["indices"], parts["lut"].to(dtype))

    def bytes(self, parts: Parts) -> int:
        return packed_size(parts["indices"].numel(), self.bits) + nbytes(parts["lut"])


def compress_in_slices(value: Tensor, scheme: Scheme, layout: Layout) -> tuple[Parts, float]:
    """Return the compressed parts of a weight and the relative error of decompressing them."""
    shared = scheme.shared(value, layout)
    step = scheme.step(layout)
    row = max(value[0].numel(), 1)
    rows = max(SLICE // (row * step), 1) * step
    pieces: list[Parts] = []
    wrong = total = 0.0
    for part in value.split(rows, 0):
        numbers = part.float()
        pieces.append(scheme.slice(numbers, layout, shared, value.dtype))
        dense = scheme.layer({**shared, **pieces[-1]}, value.dtype)().float()
        total += _square_sum(numbers)
        wrong += _square_sum(dense - numbers)
    joined = {name: _concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    del pieces
    if value.nbytes >= LARGE:
        release_freed_memory()
    error = math.sqrt(wrong / total) if total else math.sqrt(wrong)
    return {**shared, **joined}, error


def _square_sum(x: Tensor) -> float:
    """Return the sum of squares: of each row in float32, of the rows in float64."""
    rows = x.flatten(1) if x.dim() > 1 else x.reshape(1, -1)
    return float(torch.linalg.vector_norm(rows, dim=1).double().square().sum())


def _concatenate(pieces: list[Tensor]) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    if pieces[0].element_size() > 1 or pieces[0].dtype in (torch.int8, torch.uint8, torch.bool):
        return torch.cat(pieces)
    # torch.cat does not support 8-bit floats.
    return torch.cat([piece.view(torch.uint8) for piece in pieces]).view(pieces[0].dtype)
