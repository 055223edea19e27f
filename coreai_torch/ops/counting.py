"""Histograms, counts of integers, and the different values of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..ir import dialect as cai
from ..ir import shapes
from ..ir.dialect import Dim, Value
from ..lowering import Axis, Ctx, case, decomposes, lowers
from ..lowering.cases import b1, f16, f32, i32, i64, u8
from .cumulative import counting, running_total
from .ordering import order, shifted

aten = torch.ops.aten
_NAN, _INF = float("nan"), float("inf")
_EDGES = (-1.0, 0.0, 0.25, 1.0)
_NO_SIZES = "torch.export knows no sizes of a histogram but by running it"


def _tally(slot: torch.Tensor, slots: int, weight: torch.Tensor) -> torch.Tensor:
    """The weights gathered in slots; the one behind the last is for what belongs nowhere."""
    empty = torch.zeros(slots + 1, dtype=weight.dtype, device=weight.device)
    return empty.scatter_add(0, slot.reshape(-1), weight.reshape(-1))[:slots]


def _range(x: torch.Tensor, margin: float) -> tuple[torch.Tensor, torch.Tensor]:
    """From the least to the greatest; a single value gets a margin to either side."""
    low, high = torch.amin(x), torch.amax(x)
    single = low == high
    return torch.where(single, low - margin, low), torch.where(single, high + margin, high)


@decomposes(
    aten.histc.default,
    cases=[
        case(f32(20), 5),
        case(f32(4, 5), 7, -1, 1.5),
        case(f32(8, values=(0.0, 0.1, 0.2, 0.3, 0.30000001, -0.1, _INF, _NAN)), 3, 0, 0.3),
        case(f32(3, values=(2.0,)), 4),
        case(f16(20), 4, -2, 2),
        case(f32()),
    ],
)
def histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    if min == max == 0:
        low, high = _range(x, margin=1)
    else:
        low, high = (torch.full((), bound, dtype=x.dtype, device=x.device) for bound in (min, max))
    inside = (x >= low) & (x <= high)
    place = torch.where(inside, (x - low) * bins / (high - low), bins).to(torch.int64)
    # The last bin includes its end, and what lies outside has been sent one further.
    slot = torch.where(inside, place.clamp(max=bins - 1), bins)
    return _tally(slot, bins, torch.ones_like(slot)).to(x.dtype)


def _histogram(
    x: torch.Tensor, edges: torch.Tensor, weight: torch.Tensor | None, density: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    bins = edges.shape[0] - 1
    inside = (x >= edges[0]) & (x <= edges[-1])
    place = torch.searchsorted(edges, x, right=True) - 1
    slot = torch.where(inside, place.clamp(max=bins - 1), bins)
    hist = _tally(slot, bins, torch.ones_like(x) if weight is None else weight)
    return (hist / hist.sum() / edges.diff() if density else hist), edges


@decomposes(
    aten.histogram.bins_tensor,
    cases=[
        case(f32(20), f32(4, values=_EDGES), static_only=_NO_SIZES),
        case(
            f32(4, 5),
            f32(4, values=_EDGES),
            weight=f32(4, 5, low=0),
            density=True,
            static_only=_NO_SIZES,
        ),
    ],
)
def histogram(
    x: torch.Tensor,
    bins: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _histogram(x, bins, weight, density)


@decomposes(
    aten.histogram.bin_ct,
    cases=[
        case(f32(20), 5, static_only=_NO_SIZES),
        case(f32(3, values=(2.0,)), 4, static_only=_NO_SIZES),
        case(
            f32(4, 5),
            6,
            range=[-1.0, 1.5],
            weight=f32(4, 5, low=0),
            density=True,
            static_only=_NO_SIZES,
        ),
    ],
)
def histogram_of_count(
    x: torch.Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = _range(x, margin=0.5) if range is None else range
    edges = torch.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)
    return _histogram(x, edges, weight, density)


def _ones(x: Value, dtype: torch.dtype) -> Value:
    return cai.broadcast_to(cai.constant(1, dtype), cai.sizes(x))


@lowers(
    aten.bincount.default,
    cases=[
        case(i64(6, low=0, high=4)),
        case(i64(6, low=0, high=4), minlength=9),
        case(i64(6, low=0, high=4), minlength=2),
        case(i64(6, low=0, high=4), f32(6)),
        case(i32(6, low=0, high=4), i64(6), minlength=3),
        case(u8(6, low=0, high=4)),
    ],
)
def bincount(ctx: Ctx, x: Value, weights: Value | None, minlength: Dim) -> Value:
    """As long as the greatest value asks; a negative one, where torch raises, counts as zero."""
    # An index out of range would write beside the tensor.
    index = cai.maximum(cai.cast(x, torch.int32), cai.i32(0))
    needed = cai.add(shapes.scalar(cai.reduce_max(index, [0])), cai.i32(1))
    length = shapes.maximum(needed, minlength)
    empty = cai.broadcast_to(cai.constant(0, ctx.out_dtype), [length])
    given = _ones(x, ctx.out_dtype) if weights is None else cai.cast(weights, ctx.out_dtype)
    return cai.scatter_along_axis(empty, index, given, 0, "add")


def _differing(rows: Value) -> Value:
    """Whether each entry of the first axis differs from the one before it; the first does."""
    changed = cai.not_equal(rows, shifted(rows, 0))
    others = list(range(1, rows.type.rank))
    changed = cai.shrink_dims(cai.any_(changed, others), others)
    return cai.logical_or(changed, cai.equal(counting(cai.size(rows, 0)), cai.i32(0)))


def _runs(rows: Value) -> tuple[Value, Value, Value]:
    """Of equal neighbours: the first of each run, the run of each entry, the runs' lengths."""
    fresh = _differing(rows)
    starts = cai.non_zero(fresh)
    run = cai.sub(running_total(cai.raw_cast(fresh, torch.int32), 0), cai.i32(1))
    runs = cai.size(starts, 0)
    start = cai.reshape(starts, [runs])
    end = cai.concat(0, [cai.slice_axis(start, 0, 1, runs), shapes.vector([cai.size(rows, 0)])])
    return cai.gather_nd(rows, starts), run, cai.sub(end, start)


def _unsorted(run: Value, places: Value) -> Value:
    """What belongs to the sorted entries, put where the entries came from."""
    return cai.scatter_along_axis(cai.zeros(run, cai.sizes(run)), places, run, 0)


def _flat(x: Value) -> Value:
    return cai.reshape(x, [shapes.product(cai.sizes(x))])


def _wanted(ctx: Ctx, *results: Value) -> list[Value | None]:
    return [result if ctx.uses(i) else None for i, result in enumerate(results)]


_FLAGS = ("sorted", "return_inverse", "return_counts")
_UNIQUE = [
    case(i64(2, 6), return_inverse=True, return_counts=True),
    case(f32(5, values=(1.0, _NAN, _NAN, 1.0, -_INF)), True, True, True),
    case(f32(4, values=(2.0,)), True, True, True),
    case(f32(), True, True, True),
    case(b1(6), True, True, True),
    case(u8(6), True, True, True),
]


@lowers(
    aten._unique2.default,
    ignore=_FLAGS,  # any order is right for sorted=False; what nobody asked for nobody reads
    cases=_UNIQUE,
)
def unique(ctx: Ctx, x: Value) -> list[Value | None]:
    flat = _flat(x)
    places = order(flat, 0)
    values, run, counts = _runs(cai.gather_along_axis(flat, places, 0))
    return _wanted(ctx, values, cai.reshape(_unsorted(run, places), cai.sizes(x)), counts)


def _to_front(x: Value, axis: int) -> tuple[Value, list[int]]:
    """The axis first, and the permutation that puts it back."""
    rest = [a for a in range(x.type.rank) if a != axis]
    forth = [axis, *rest]
    return cai.transpose(x, forth), [forth.index(a) for a in range(x.type.rank)]


@lowers(
    aten.unique_consecutive.default,
    ignore=("return_inverse", "return_counts"),
    cases=[
        case(i64(6, values=(1, 1, 2, 2, 2, 1)), True, True),
        case(i64(2, 3, values=(0, 1, 1, 1, 2, 0)), True, True),
        case(f32(4, values=(0.0, _NAN, _NAN, 1.0)), True, True),
        case(f32(), True, True),
        case(b1(6), True, True),
        case(i64(3, 2, values=(1, 2, 1, 2, 1, 1)), True, True, 0),
        case(i64(2, 3, values=(1, 1, 2, 2, 2, 1)), True, True, 1),
    ],
)
def unique_consecutive(ctx: Ctx, x: Value, dim: int | None) -> list[Value | None]:
    if dim is not None and dim < 0:
        # The export promises [2, u0, 2, 3] for [2, 3] along -1.
        ctx.refuse(f"torch.export gets the sizes wrong with dim={dim}", f"dim={dim + x.type.rank}")
    if dim is None:
        values, run, counts = _runs(_flat(x))
        return _wanted(ctx, values, cai.reshape(run, cai.sizes(x)), counts)
    rows, back = _to_front(x, dim)
    values, run, counts = _runs(rows)
    return _wanted(ctx, cai.transpose(values, back), run, counts)


def _row_order(rows: Value) -> Value:
    """The stable permutation that sorts rows by their first element that differs.

    Every row is held against every other: the dialect sorts single numbers only.
    """
    flat = cai.reshape(rows, [cai.size(rows, 0), shapes.product(cai.sizes(rows)[1:])])
    keys = cai.cast(flat, torch.int32) if cai.is_bool(flat) else flat
    mine, other = cai.expand_dims(keys, [1]), cai.expand_dims(keys, [0])
    differs = cai.raw_cast(cai.not_equal(mine, other), torch.int32)
    precedes = cai.gather_along_axis(cai.greater(mine, other), cai.argmax(differs, 2), 2)
    rank = cai.reduce_sum(cai.raw_cast(precedes, torch.int32), [1])
    return cai.argsort(cai.shrink_dims(rank, [1, 2]), 0, False)


@lowers(
    aten.unique_dim.default,
    ignore=_FLAGS,
    cases=[
        case(i64(4, 2, values=(1, 2, 0, 5, 1, 2, 1, 0)), 0, True, True, True),
        case(i64(2, 4, values=(1, 2, 1, 0, 5, 1, 5, 1)), -1, True, True, True),
        case(f32(3, 2, 2, values=(1.0, 0.0, 1.0, 0.0, 1.0, -1.0, 0.0, 1.0)), 0, True, True, True),
        case(b1(5, 2), 0, True, True, True),
        case(i64(4, values=(2, 1, 2, 0)), 0, True, True, True),
    ],
)
def unique_dim(ctx: Ctx, x: Value, dim: Axis) -> list[Value | None]:
    rows, back = _to_front(x, dim)
    places = _row_order(rows)
    ordered = cai.gather_nd(rows, cai.expand_dims(places, [1]))
    values, run, counts = _runs(ordered)
    return _wanted(ctx, cai.transpose(values, back), _unsorted(run, places), counts)
