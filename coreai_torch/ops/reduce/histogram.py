"""Lower histc, histogram and histogramdd, written in torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from ...lowering import case, decomposes
from ...lowering.cases import f16, f32
from ...torch_compat import aten

_NAN, _INF = float("nan"), float("inf")
_EDGES = (-1.0, 0.0, 0.25, 1.0)
_STATIC_SIZES = "torch.export computes the result sizes of a histogram only by running it"

Weight: TypeAlias = "torch.Tensor | None"
Range: TypeAlias = "Sequence[float] | None"


def _sum_per_bin(slot: torch.Tensor, bins_: int, weight: torch.Tensor) -> torch.Tensor:
    """Sum the weights per bin; values outside all bins go to an extra bin, which is dropped."""
    empty = torch.zeros(bins_ + 1, dtype=weight.dtype, device=weight.device)
    return empty.scatter_add(0, slot.reshape(-1), weight.reshape(-1))[:bins_]


def _is_empty(x: torch.Tensor) -> bool:
    return any(type(size) is int and size == 0 for size in x.shape)


def _range(x: torch.Tensor, margin: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the minimum and maximum; if they are equal, widen the range by `margin`."""
    if _is_empty(x):
        return x.new_zeros(()), x.new_ones(())
    low, high = torch.amin(x), torch.amax(x)
    single = low == high
    return torch.where(single, low - margin, low), torch.where(single, high + margin, high)


@decomposes(
    aten.histc.default,
    cases=[
        case(f32(20), 5),
        case(f32(4, 5), 7, -1, 1.5),
        case(f32(8, values=(0.0, 0.1, 0.2, 0.3, 0.30000001, -0.1, _INF, _NAN)), 3, 0, 0.3),
        case(f32(3, values=(2.0,)), 4, 1, 1),
        case(f16(20), 4, -2, 2),
        case(f32()),
        case(f32(0), 3, static_only="a zero-size operand"),
    ],
)
def histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    if min == max:
        low, high = _range(x, margin=1)
    else:
        low, high = (torch.full((), bound, dtype=x.dtype, device=x.device) for bound in (min, max))
    inside = (x >= low) & (x <= high)
    bin_ = torch.where(inside, (x - low) * bins / (high - low), bins).to(torch.int64)
    # The last bin includes its upper edge; values outside were sent to bin `bins`.
    slot = torch.where(inside, bin_.clamp(max=bins - 1), bins)
    return _sum_per_bin(slot, bins, torch.ones_like(slot)).to(x.dtype)


def _edges(x: torch.Tensor, bins: int, given: Range) -> torch.Tensor:
    low, high = _range(x, margin=0.5) if given is None else given
    return torch.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)


def _slot(x: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bin of each value, and whether it lies in one; the last bin is closed."""
    bin_ = torch.searchsorted(edges, x, right=True) - 1
    return bin_.clamp(0, edges.shape[0] - 2), (x >= edges[0]) & (x <= edges[-1])


def _histogram(
    points: torch.Tensor, edges: Sequence[torch.Tensor], weight: Weight, density: bool
) -> torch.Tensor:
    """Return the histogram of points, whose coordinates are on the last axis."""
    sizes = [e.shape[0] - 1 for e in edges]
    coordinates = points.reshape(-1, len(edges)).unbind(1)
    slot, inside = _slot(coordinates[0].contiguous(), edges[0])
    for coordinate, edge in zip(coordinates[1:], edges[1:], strict=True):
        bin_, bin_inside = _slot(coordinate.contiguous(), edge)
        slot, inside = slot * (edge.shape[0] - 1) + bin_, inside & bin_inside
    bins_ = math.prod(sizes)
    given = torch.ones_like(coordinates[0]) if weight is None else weight
    hist = _sum_per_bin(torch.where(inside, slot, bins_), bins_, given).reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for axis, edge in enumerate(edges):
            hist = hist / edge.diff().reshape([-1] + [1] * (len(edges) - axis - 1))
    return hist


_OPTIONS: dict[str, Any] = {"density": True, "static_only": _STATIC_SIZES}


@decomposes(
    aten.histogram.bins_tensor,
    cases=[
        case(f32(20), f32(4, values=_EDGES), static_only=_STATIC_SIZES),
        case(f32(4, 5), f32(4, values=_EDGES), weight=f32(4, 5, low=0), **_OPTIONS),
    ],
)
def histogram(
    x: torch.Tensor, bins: torch.Tensor, *, weight: Weight = None, density: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return _histogram(x.reshape(-1, 1), [bins], weight, density), bins


@decomposes(
    aten.histogram.bin_ct,
    cases=[
        case(f32(20), 5, static_only=_STATIC_SIZES),
        case(f32(3, values=(2.0,)), 4, static_only=_STATIC_SIZES),
        case(f32(0), 4, static_only=_STATIC_SIZES),
        case(f32(4, 5), 6, range=[-1.0, 1.5], weight=f32(4, 5, low=0), **_OPTIONS),
    ],
)
def histogram_of_count(
    x: torch.Tensor,
    bins: int = 100,
    *,
    range: Range = None,
    weight: Weight = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    edges = _edges(x, bins, range)
    return _histogram(x.reshape(-1, 1), [edges], weight, density), edges


_POINTS = [
    case(f32(20, 2), [3, 2], static_only=_STATIC_SIZES),
    case(f32(4, 5, 2), [3, 2], range=[-1.0, 1.5, 0.0, 2.0], static_only=_STATIC_SIZES),
    case(f32(20, 2), [3, 2], weight=f32(20, low=0), **_OPTIONS),
]


@decomposes(aten._histogramdd_bin_edges.default, cases=_POINTS)
def histogramdd_edges(
    x: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Range = None,
    weight: Weight = None,
    density: bool = False,
) -> list[torch.Tensor]:
    bounds = (
        [None] * len(bins) if range is None else list(zip(range[::2], range[1::2], strict=True))
    )
    coordinates = x.reshape(-1, len(bins)).unbind(1)
    return [_edges(c, b, r) for c, b, r in zip(coordinates, bins, bounds, strict=True)]


@decomposes(aten._histogramdd_from_bin_cts.default, cases=_POINTS)
def histogramdd_of_counts(
    x: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Range = None,
    weight: Weight = None,
    density: bool = False,
) -> torch.Tensor:
    return _histogram(x, histogramdd_edges(x, bins, range=range), weight, density)


@decomposes(
    aten._histogramdd_from_bin_tensors.default,
    cases=[
        case(f32(20, 2), [f32(4, values=_EDGES), f32(3, values=_EDGES)], static_only=_STATIC_SIZES),
        case(
            f32(20, 2),
            [f32(4, values=_EDGES), f32(3, values=_EDGES)],
            weight=f32(20, low=0),
            **_OPTIONS,
        ),
    ],
)
def histogramdd(
    x: torch.Tensor, bins: Sequence[torch.Tensor], *, weight: Weight = None, density: bool = False
) -> torch.Tensor:
    return _histogram(x, bins, weight, density)
