"""Sparse schemes: a mask of the largest elements, and those elements as they are or compressed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .modules import PalettizeModule, SparseModule, WeightDequantizeModule
from .packing import packed_size
from .palettes import SAMPLE, nearest, palette
from .placing import put
from .scalars import Integers
from .schemes import SLICE, IntegerScheme, Layout, Parts, Scheme, nbytes


class Pruning(ABC):
    """A rule that selects the elements of a weight to keep."""

    name: str

    def skip_reason(self, layout: Layout) -> str | None:
        """Return why a weight of this layout cannot be pruned, or None."""
        return None

    def step(self, layout: Layout) -> int:
        """Return a row count; the rows of each slice must be a multiple of it."""
        return 1

    def shared(self, weight: Tensor) -> Parts:
        """Return the values that all slices need."""
        return {}

    @abstractmethod
    def mask(self, weight: Tensor, layout: Layout, shared: Parts) -> Tensor:
        """Return which elements of some rows are kept."""


@dataclass(frozen=True)
class Share(Pruning):
    """Drop a percentage of the elements, the smallest ones."""

    percent: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"sparse{self.percent}"

    def shared(self, weight: Tensor) -> Parts:
        dropped = weight.numel() * self.percent // 100
        return {"threshold": _threshold(weight.detach(), dropped)}

    def mask(self, weight: Tensor, layout: Layout, shared: Parts) -> Tensor:
        return weight.abs() > shared["threshold"]


@dataclass(frozen=True)
class Groups(Pruning):
    """Keep the `kept` largest of every `size` consecutive inputs: n:m sparsity."""

    kept: int
    size: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"sparse{self.kept}:{self.size}"

    def skip_reason(self, layout: Layout) -> str | None:
        inputs = layout.shape[layout.across]
        if inputs % self.size == 0:
            return None
        return f"indivisible: {inputs} on axis {layout.across} in groups of {self.size}"

    def step(self, layout: Layout) -> int:
        return self.size if layout.across == 0 else 1

    def mask(self, weight: Tensor, layout: Layout, shared: Parts) -> Tensor:
        last = weight.abs().movedim(layout.across, -1)
        groups = last.unflatten(-1, (-1, self.size))
        largest = groups.topk(self.kept, dim=-1).indices
        mask = torch.zeros(groups.shape, dtype=torch.bool).scatter_(-1, largest, True)
        return mask.flatten(-2).movedim(-1, layout.across).contiguous()


def _threshold(weight: Tensor, dropped: int) -> Tensor:
    """Return the `dropped`-th smallest magnitude without sorting (radix select on the bits).

    The bit patterns of positive floats are ordered like the floats: a histogram of the upper half
    of the bits selects a bucket, a histogram of the lower half selects the value in it.
    """
    parts = weight.split(max(SLICE // max(weight[0].numel(), 1), 1))
    upper = sum(torch.bincount(_bits(part) >> 16, minlength=1 << 15) for part in parts)
    high = int(torch.searchsorted(upper.cumsum(0), max(dropped, 1)))
    before = int(upper[:high].sum())
    lower = torch.zeros(1 << 16, dtype=torch.int64)
    for part in parts:
        bits = _bits(part)
        lower += torch.bincount(bits[bits >> 16 == high] & 0xFFFF, minlength=1 << 16)
    low = int(torch.searchsorted(lower.cumsum(0), max(dropped, 1) - before))
    return torch.tensor((high << 16) | low, dtype=torch.int32).view(torch.float32)


def _bits(part: Tensor) -> Tensor:
    return part.float().abs().flatten().view(torch.int32)


@dataclass(frozen=True)
class SparseScheme(Scheme):
    """The largest elements of a weight, and a mask of their positions."""

    pruning: Pruning
    block = None
    takes_block = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.pruning.name

    def skip_reason(self, layout: Layout) -> str | None:
        return self.pruning.skip_reason(layout)

    def step(self, layout: Layout) -> int:
        return self.pruning.step(layout)

    def shared(self, weight: Tensor, layout: Layout) -> Parts:
        return self.pruning.shared(weight)

    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        mask = self.pruning.mask(weight, layout, shared)
        return {"nonzero": weight[mask].to(dtype), "mask": mask}

    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        return SparseModule(parts["nonzero"], parts["mask"])

    def bytes(self, parts: Parts) -> int:
        return nbytes(parts["nonzero"]) + packed_size(parts["mask"].numel(), 1)


@dataclass(frozen=True)
class SparsePaletteScheme(SparseScheme):
    """A mask of the largest elements, and an index into a table for each of them."""

    bits: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.pruning.name}+palettize{self.bits}"

    def shared(self, weight: Tensor, layout: Layout) -> Parts:
        found = self.pruning.shared(weight)
        table = palette(self._sample(weight, layout, found), 2**self.bits)
        return {**found, "lut": table.reshape(1, -1, 1)}

    def _sample(self, weight: Tensor, layout: Layout, shared: Parts) -> Tensor:
        """Return some of the elements that are kept."""
        stride = -(-weight.numel() // SAMPLE)
        step = self.step(layout)
        rows = weight.unflatten(0, (-1, step))[::stride].flatten(0, 1).float()
        kept = rows[self.pruning.mask(rows, layout, shared)]
        return kept if kept.numel() else rows.flatten()[:1]

    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        kept = super().slice(weight, layout, shared, torch.float32)
        table = shared["lut"].to(dtype).float().flatten()
        return {"indices": nearest(kept["nonzero"], table), "mask": kept["mask"]}

    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        lut = parts["lut"].to(dtype)
        return _sparse_indices(parts["indices"], lut, parts["mask"])

    def bytes(self, parts: Parts) -> int:
        indices = packed_size(parts["indices"].numel(), self.bits)
        return indices + nbytes(parts["lut"]) + packed_size(parts["mask"].numel(), 1)


@dataclass(frozen=True)
class SparseIntegerScheme(SparseScheme):
    """A mask of the largest elements, an integer for each of them, and a scale for each block.

    Zeros are scattered between the integers before they are scaled, so that a scale applies to a
    block of the weight as in `IntegerScheme`.
    """

    numbers: Integers
    takes_block = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.pruning.name}+{self.numbers.name}"

    @property
    def _dense(self) -> IntegerScheme:
        return IntegerScheme(self.numbers)

    def skip_reason(self, layout: Layout) -> str | None:
        return self.pruning.skip_reason(layout) or self._dense.skip_reason(layout)

    def step(self, layout: Layout) -> int:
        return max(self.pruning.step(layout), self._dense.step(layout))

    def slice(self, weight: Tensor, layout: Layout, shared: Parts, dtype: torch.dtype) -> Parts:
        mask = self.pruning.mask(weight, layout, shared)
        parts = self._dense.slice(weight * mask, layout, shared, dtype)
        return {"codes": parts["data"][mask], "mask": mask, "scale": parts["scale"]}

    def layer(self, parts: Parts, dtype: torch.dtype) -> nn.Module:
        codes, mask, low = parts["codes"], parts["mask"], self.numbers.low
        if self.numbers.bits == 8:
            sparse: nn.Module = SparseModule(codes, mask)
        else:  # a table of all integers, so that the program packs them to their bit width
            table = torch.arange(low, self.numbers.high + 1, dtype=torch.int8).reshape(1, -1, 1)
            sparse = _sparse_indices((codes.to(torch.int16) - low).to(torch.uint8), table, mask)
        placeholder = torch.zeros([1] * mask.dim(), dtype=torch.int8).expand(mask.shape)
        layer = WeightDequantizeModule(placeholder, parts["scale"])
        put(layer, "quantized_data", sparse)
        return layer

    def bytes(self, parts: Parts) -> int:
        codes, mask = parts["codes"], parts["mask"]
        table = 0 if self.numbers.bits == 8 else 2**self.numbers.bits
        packed = packed_size(codes.numel(), self.numbers.bits) + packed_size(mask.numel(), 1)
        return packed + table + nbytes(parts["scale"])


def _sparse_indices(indices: Tensor, table: Tensor, mask: Tensor) -> SparseModule:
    layer = SparseModule(table.new_zeros(1).expand(indices.shape), mask)
    put(layer, "nonzero_data", PalettizeModule(indices, table))
    return layer
