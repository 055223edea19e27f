"""Lower `bincount` and the `unique` ops."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, case, lowers
from ...lowering.cases import b1, f16, f32, i32, i64, u8
from ...torch_compat import aten
from .cumulative import counting
from .sort_topk import order, shifted

_NAN, _INF = float("nan"), float("inf")


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
    """Count each integer up to the maximum; a negative one, where torch raises, counts as zero."""
    # Guard of a crash: an index of -1 would write outside the tensor.
    index = cai.maximum(cai.cast(x, torch.int32), cai.i32(0))
    # Append -1 so that an empty operand, as in `bincount(x[x > 9])`, gives length 0.
    can_be_empty = cai.may_be_empty(index) or 0 in index.type.shape
    counted = cai.concat(0, [index, shapes.vector([-1])]) if can_be_empty else index
    greatest = cai.reduce_max(counted, [0])
    needed = cai.add(shapes.scalar(greatest), cai.i32(1))
    length = shapes.maximum(needed, minlength)
    empty = cai.broadcast_to(cai.constant(0, ctx.out_dtype), [length])
    given = _ones(x, ctx.out_dtype) if weights is None else cai.cast(weights, ctx.out_dtype)
    return cai.scatter_along_axis(empty, index, given, 0, "add")


def _differing(rows: Value) -> Value:
    """Return whether each entry of the first axis differs from its predecessor; the first does."""
    changed = cai.not_equal(rows, shifted(rows, 0))
    others = list(range(1, rows.type.rank))
    changed = cai.shrink_dims(cai.any_(changed, others), others)
    return cai.logical_or(changed, _is_first(cai.size(rows, 0)))


def _is_first(count: Dim) -> Value:
    """Return true, followed by false."""
    if isinstance(count, int):
        return cai.tensor_constant(torch.arange(count) == 0, "first")
    return cai.equal(counting(count), cai.i32(0))


def _runs(ctx: Ctx, rows: Value, places: Value | None = None) -> list[Value | None]:
    """Return the first entry of each run of equal entries, each entry's run, and run lengths.

    `places` are those of the entries in the original order, if they were sorted. Results that
    nothing reads are None.
    """
    fresh = _differing(rows)
    starts = cai.non_zero(fresh)
    run = length = None
    if ctx.uses(1):
        run = cai.sub(cai.scan(cai.raw_cast(fresh, torch.int32), 0, "sum"), cai.i32(1))
        if places is not None:
            run = cai.scatter_along_axis(cai.zeros(run, cai.sizes(run)), places, run, 0)
    if ctx.uses(2):
        count = cai.size(starts, 0)
        limits = cai.concat(0, [cai.reshape(starts, [count]), shapes.vector([cai.size(rows, 0)])])
        ends = cai.slice_axis(limits, 0, 1, shapes.add(count, 1))
        length = cai.sub(ends, cai.slice_axis(limits, 0, 0, count))
    return [cai.gather_nd(rows, starts) if ctx.uses(0) else None, run, length]


def _flat(x: Value) -> Value:
    return cai.reshape(x, [shapes.product(cai.sizes(x))])


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
    ignore=_FLAGS,  # sorted=False allows any order; results not requested are not read
    cases=[
        *_UNIQUE,
        case(i64(6, values=(2**31 - 1, -(2**31), 5, 5, 0, -(2**31))), True, True, True),
        case(i64(6, values=(-3, 40, -3, 7, 7, 7)), True, True, True),
    ],
)
def unique(ctx: Ctx, x: Value) -> list[Value | None]:
    flat = _flat(x)
    places = order(flat, 0)
    values, inverse, counts = _runs(ctx, cai.gather_along_axis(flat, places, 0), places)
    return [values, _in_sizes_of(x, inverse), counts]


def _in_sizes_of(x: Value, index: Value | None) -> Value | None:
    """Return an index of all elements in the sizes of `x`; a reshape fails if there are none."""
    return index if index is None or x.type.rank == 1 else cai.reshape(index, cai.sizes(x))


def _to_front(x: Value, axis: int) -> tuple[Value, list[int]]:
    """Return `x` with the axis first, and the permutation that moves it back."""
    rest = [a for a in range(x.type.rank) if a != axis]
    forth = [axis, *rest]
    return cai.transpose(x, forth), [forth.index(a) for a in range(x.type.rank)]


def _with_axis_back(found: Sequence[Value | None], back: Sequence[int]) -> list[Value | None]:
    """Return the three results with the axis of the values at its place."""
    values, *numbers = found
    return [None if values is None else cai.transpose(values, back), *numbers]


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
        case(i64(3, 2, values=(1, 2, 1, 2, 1, 1)), True, True, -2),
    ],
)
def unique_consecutive(ctx: Ctx, x: Value, dim: int | None) -> list[Value | None]:
    if dim == -1:
        # torch.export gives [2, u0, 2, 3] for [2, 3] along -1; along -2 the sizes are correct.
        ctx.refuse(f"torch.export gets the sizes wrong with dim={dim}", f"dim={dim + x.type.rank}")
    if dim is None:
        values, inverse, counts = _runs(ctx, _flat(x))
        return [values, _in_sizes_of(x, inverse), counts]
    rows, back = _to_front(x, dim % x.type.rank)
    return _with_axis_back(_runs(ctx, rows), back)


# The sorts of at most this many columns are emitted one by one: a loop can keep a graph off a unit.
_UNROLLED = 8


def _row_order(rows: Value) -> Value:
    """Return the stable permutation that sorts rows lexicographically.

    Sort by each column from the last to the first: the dialect sorts only single numbers.
    """
    count, width = cai.size(rows, 0), shapes.product(cai.sizes(rows)[1:])
    keys = cai.cast(rows, torch.int32) if cai.is_bool(rows) else rows
    columns = cai.transpose(cai.reshape(keys, [count, width]), [1, 0])

    def column(start: Dim, end: Dim) -> Value:
        return cai.reshape(cai.slice_axis(columns, 0, start, end), [count])

    if isinstance(width, int) and width <= _UNROLLED:
        places = order(column(width - 1, width), 0)
        for k in reversed(range(width - 1)):
            places = _resorted(places, column(k, k + 1))
        return places

    def body(state: Sequence[Value]) -> list[Value]:
        end, places = state
        start = cai.sub(end, cai.i32(1))
        return [start, _resorted(places, column(start, end))]

    first = [shapes.number(width), counting(count)]
    return graph.loop(first, lambda state: cai.greater(state[0], cai.i32(0)), body)[1]


def _resorted(places: Value, keys: Value) -> Value:
    """Return a permutation sorted by the keys of its entries; equal keys keep their order."""
    moved = order(cai.gather_along_axis(keys, places, 0), 0)
    return cai.gather_along_axis(places, moved, 0)


@lowers(
    aten.unique_dim.default,
    ignore=_FLAGS,
    cases=[
        case(i64(4, 2, values=(1, 2, 0, 5, 1, 2, 1, 0)), 0, True, True, True),
        case(i64(2, 4, values=(1, 2, 1, 0, 5, 1, 5, 1)), -1, True, True, True),
        case(f32(3, 2, 2, values=(1.0, 0.0, 1.0, 0.0, 1.0, -1.0, 0.0, 1.0)), 0, True, True, True),
        case(f32(3, 2, values=(0.0, 1.0, -0.0, 0.0, 0.0, 1.0)), 0, True, True, True),
        case(f32(2, 2, values=(1.0, _NAN)), 0, True, True, True),
        case(f16(5, 12, values=(1.0, 0.0, 1.0, -1.0)), 0, True, True, True),
        case(i32(3, 2, values=(2**31 - 1, 0, -(2**31))), 0, True, True, True),
        case(u8(3, 2, values=(255, 0, 1, 127, 255, 0)), 0, True, True, True),
        case(i64(2, 4, 3, 2, values=(1, 0, 0, 1, 0)), 1, True, True, True),
        case(b1(5, 2), 0, True, True, True),
        case(b1(6, 9), 0, True, True, True),
        case(i64(4, values=(2, 1, 2, 0)), 0, True, True, True),
    ],
)
def unique_dim(ctx: Ctx, x: Value, dim: Axis) -> list[Value | None]:
    """Return the unique entries of an axis; NaN is greatest.

    Torch's order of rows with NaN depends on the order of the input: [[nan], [1.0], [nan], [0.0]]
    stays as it is.
    """
    rows, back = _to_front(x, dim)
    places = _row_order(rows)
    ordered = cai.gather_nd(rows, cai.expand_dims(places, [1]))
    return _with_axis_back(_runs(ctx, ordered, places), back)
