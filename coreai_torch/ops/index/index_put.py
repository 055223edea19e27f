"""Lower assignments to a part of a tensor: `x[a:b] = y`, `x[i, :, j] += y`, `x[mask] = y`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as replace_fields

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.composite import Composite
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, Number, case, decomposes, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64
from ...torch_compat import aten
from .._lib import windows
from .._lib.subscript import (
    Subscript,
    common_shape,
    concat_columns,
    coordinates,
    gather,
    linear,
    per_part,
    subscript,
)
from .gather import bounds, flatten_masked, index_bounds, reaches_end

_LAST = 2**63 - 1


@lowers(
    aten.slice_scatter.default,
    cases=[
        case(f32(2, 5), f32(2, 3), 1, 1, 4, static_only="the update has the size of the slice"),
        case(f32(2, 5), f32(2, 2), -1, -3, -1, static_only="the update has the slice's size"),
        case(f16(2, 5), f16(2, 3), 1, 0, _LAST, 2, static_only="the update has the slice's size"),
        case(f32(5), f32(5), 0, None, None),
        case(f32(2, 3), f32(2, 3)),
        case(i64(4, 2), i64(2, 2, fixed=True), 0, -2, _LAST),
        case(b1(4), b1(2, fixed=True), 0, 1, 3),
        case(c64(4), c64(2, fixed=True), 0, 1, 3),
    ],
)
def slice_scatter(
    ctx: Ctx, x: Value, src: Value, dim: Axis, start: Number | None, end: Number | None, step: int
) -> Value:
    update = cai.cast(src, cai.dtype(x))
    first, last = bounds(start, end, x.type.shape[dim])
    if (first, step) == (0, 1) and reaches_end(last, x.type.shape[dim]):
        return cai.broadcast_to(update, cai.sizes(x)) if update.type != x.type else update
    return _update_axis(x, update, dim, first, last, step)


def _update_axis(x: Value, update: Value, axis: int, start: Dim, end: Dim, step: int = 1) -> Value:
    starts: list[Dim] = [0] * x.type.rank
    ends: list[Dim] = list(cai.whole(x))
    strides: list[Dim] = [1] * x.type.rank
    starts[axis], ends[axis], strides[axis] = start, end, step
    return cai.slice_update(x, update, starts, ends, strides)


@lowers(
    aten.select_scatter.default,
    cases=[
        case(f32(3, 4), f32(4), 0, 1),
        case(f16(3, 4), f16(3), -1, -1),
        case(i64(3), i64(), 0, 2),
        case(b1(3, 2), b1(2), 0, -3),
    ],
)
def select_scatter(ctx: Ctx, x: Value, src: Value, dim: Axis, index: Number) -> Value:
    first, last = index_bounds(x, dim, index)
    update = cai.expand_dims(cai.cast(src, cai.dtype(x)), [dim])
    return _update_axis(x, update, dim, first, last)


@lowers(
    aten.index_copy.default,
    cases=[
        case(f32(4, 3), 0, i64(2, values=(3, 0)), f32(2, 3)),
        case(f32(2, 4, 3), 1, i64(1, values=(2,)), f32(2, 1, 3)),
        case(f16(1, 2, 8, 4), 2, i64(1, values=(5,)), f16(1, 2, 1, 4)),
        case(f16(1, 2, 8, 4), -2, i64(3, values=(5, 6, 7)), f16(1, 2, 3, 4)),
        case(f32(4, 3), 1, i64(2, values=(2, 0), constant=True), f32(4, 2)),
        case(i32(4), 0, i64(values=(2,)), i32()),
        case(i8(4, 2), 0, i64(1, values=(1,)), i8(1, 2)),
        case(f32(), 0, i64(1, values=(0,)), f32(1)),
        case(b1(4), 0, i64(2, values=(2, 1)), b1(2)),
        case(f32(4), 0, i64(0), f32(0), static_only="a zero-size index"),
    ],
)
def index_copy(ctx: Ctx, x: Value, dim: Axis, index: Value, source: Value) -> Value:
    """Copy rows; negative indices are invalid here (torch raises)."""
    if 0 in index.type.shape:
        return x
    if x.type.rank == 0:
        return cai.reshape(source, [])
    column = cai.cast(index, torch.int32)
    if column.type.rank == 0:
        column = cai.reshape(column, [1])
    rows = cai.reshape(source, [1]) if source.type.rank == 0 else source
    return replace(x, Subscript((dim,), (column,), cai.sizes(column), data_dependent=False), rows)


def replace(x: Value, at: Subscript, values: Value) -> Value:
    """Return `x` after `x[at] = values`.

    Elements that are not written are not read either.
    """
    if len(at.axes) == 1 and shapes.product(at.shape) == 1:
        return _replace_one(x, at, values)
    columns, layout = coordinates(x, at)
    updates = cai.broadcast_to(values, [*layout, *cai.sizes(x)[at.axes[-1] + 1 :]])
    return cai.scatter_nd(x, concat_columns(columns, layout), updates)


def _replace_one(x: Value, at: Subscript, values: Value) -> Value:
    """Write a single position along one axis with slice_update, as a cache does.

    A position out of bounds writes nothing, where torch would raise.
    """
    (axis,), (column,) = at.axes, at.columns
    sizes = list(cai.sizes(x))
    rows = cai.broadcast_to(values, [*sizes[:axis], *at.shape, *sizes[axis + 1 :]])
    sizes[axis] = 1
    update = rows if len(at.shape) == 1 else cai.reshape(rows, sizes)
    place = cai.known_number(column)
    first: Dim = shapes.scalar(column) if place is None else int(place)
    return _update_axis(x, update, axis, first, shapes.add(first, 1))


def add_at(x: Value, at: Subscript, values: Value) -> Value:
    """Return `x` after `x[at] += values`; repeated positions accumulate."""
    sizes = cai.sizes(x)
    if len(at.axes) == 1:
        (axis,) = at.axes
        before, after = sizes[:axis], sizes[axis + 1 :]
        place = at.columns[0]
    else:  # the op addresses one axis
        axis, before, after = 0, (), sizes[at.axes[-1] + 1 :]
        rows = sizes[: at.axes[-1] + 1]
        columns, layout = coordinates(x, at)
        at = replace_fields(at, shape=layout)
        place = windows.value(linear(columns, rows))
        place = cai.broadcast_to(place, layout) if layout else place
        x = cai.reshape(x, [shapes.product(rows), *after])
    count = shapes.product(at.shape)
    dims = [*before, count, *after]
    terms = cai.reshape(cai.broadcast_to(values, [*before, *at.shape, *after]), dims)
    others = [a for a in range(len(dims)) if a != axis]
    index = cai.broadcast_to(cai.expand_dims(cai.reshape(place, [count]), others), dims)
    return cai.reshape(scatter_reduced(x, index, terms, axis, "add"), sizes)


def scatter_reduced(x: Value, index: Value, terms: Value, axis: int, mode: str) -> Value:
    """Scatter sums or products sequentially in the dtype of `x`, as torch does.

    Guard of a crash: integers are computed in int32 and wrapped after. The runtime (1.0.0b3) ends
    the process on an integer overflow, for example int8 100 + 100.
    """
    if cai.is_complex(x):
        return per_part(lambda a, b: scatter_reduced(a, index, b, axis, mode), x, terms)
    dtype = cai.dtype(x) if cai.is_float(x) else torch.int32
    total = cai.scatter_along_axis(cai.cast(x, dtype), index, cai.cast(terms, dtype), axis, mode)
    return cai.cast(total, cai.dtype(x))


@lowers(
    aten.index_put.default,
    aten._unsafe_index_put.default,
    cases=[
        case(f32(4, 3), [i64(2, values=(3, -4))], f32(2, 3)),
        case(f32(4, 3), [i64(2, values=(3, -4), constant=True)], f32()),
        case(f32(4, 7), [i64(2, values=(3, -4))], f32(2, 7)),
        case(f32(4, 3), [i64(2, values=(3, 0), constant=True), i64(2, values=(1, -1))], f32(2)),
        case(f32(2, 3, 4, 2), [None, i64(2, values=(2, -3))], f32(2, 2, 4, 2)),
        case(f32(4, 3), [None, i64(1, values=(-1,))], f32(4, 1)),
        case(f16(1, 2, 8, 4), [None, None, i64(1, values=(5,))], f16(2, 1, 4)),
        case(i8(1, 2, 8, 4), [None, None, i64(values=(5,))], i8(2, 4)),
        case(i64(1, 2, 8, 4), [None, None, i64(2, values=(5, 0))], i64(2, 2, 4)),
        case(f32(4, 3), [i64(2, values=(3, 0)), i64(2, values=(1, -1))], f32(2)),
        case(f32(5), [i64(2, 2, values=(3, 0, -1, 2))], f32(2, 2)),
        case(f32(2, 4, 3), [i64(2, values=(1, 0)), None, i64(2, values=(1, -1))], f32(2, 4)),
        case(f32(2, 4, 3, 2), [None, i64(2, values=(1, 0)), None, i64(1, values=(1,))], f32()),
        case(f32(4, 3), [i64(3, values=(3, 0, 3))], f32(3, 3), True),
        case(f16(4, 3), [None, i64(3, values=(-1, 0, 2))], f16(4, 3), True),
        case(i8(4), [i64(3, values=(3, 3, 3))], i8(3, values=(100,)), True),
        case(b1(4), [i64(3, values=(3, 0, 3))], b1(3, values=(True,)), True),
        case(c64(4), [i64(3, values=(3, 0, 3))], c64(3), True),
        case(f32(2, 4, 3), [i64(2, values=(1, 1)), None, i64(2, values=(1, -2))], f32(1), True),
        case(f32(2, 3), [b1(2, 3, values=(True, False))], f32()),
        case(f32(2, 3), [b1(2, 3, values=(True, False))], f32(1), True),
        case(f32(2, 3, 2), [b1(2, values=(True, False))], f32(3, 2)),
        case(f32(2, 3, 2), [b1(2, 3, values=(True, False))], f32(1, 2)),
        case(f32(2, 3), [None, b1(3, values=(True, False))], f32(2, 2, fixed=True)),
        case(f32(2, 3), [b1(2, 3, values=(True, False))], f32(3, fixed=True), True),
        case(f32(2, 3), [b1(2, 3, values=(True, False), constant=True)], f32(3, fixed=True)),
        case(i32(4), [b1(4, values=(False,))], i32(1)),
        case(f32(4), [i64(0)], f32(0), static_only="a zero-size index"),
        case(f32(4), [b1(4, values=(False,), constant=True)], f32(1)),
        case(f32(3, 4), [b1(3, values=(True, False)), i64(1, values=(1,))], f32(1), True),
        case(f32(2, 3, 4), [None, b1(3, values=(True,)), i64(values=(2,))], f32(2, 1)),
        case(f32(3, 4), [b1(3, values=(False,)), i64(1, values=(1,))], f32()),
        case(f32(3, 4, 2), [b1(3, values=(True, False)), i64(1, values=(-1,))], f32(1, 2), True),
        case(f32(3, 2, 4), [b1(3, values=(True, False)), None, i64(values=(3,))], f32(2)),
    ],
)
def index_put(
    ctx: Ctx, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    known = ctx.known_each("indices")
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    terms = cai.cast(values, cai.dtype(x))
    masks = [(a, i) for a, i in given if known[a] is None and cai.is_bool(i)]
    if masks and len(given) > 1:
        return _put_in_rows(ctx, x, indices, terms, accumulate)
    if masks:
        return _put_masked(x, *masks[0], terms, accumulate)
    at = subscript(ctx, x, indices, known, ctx.never_negative("indices"))
    if 0 in at.shape:
        return x
    return add_at(x, at, terms) if accumulate else replace(x, at, terms)


def _put_in_rows(
    ctx: Ctx, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    """Write `x[mask, 2] = 0`: all rows are written, those outside of the mask with themselves.

    Guard of a crash: a scatter to the rows of the mask has no entries if it is false everywhere.
    """
    known = ctx.known_each("indices")
    axes = [a for a, i in enumerate(indices) if i is not None and cai.is_bool(i)]
    others = [i for a, i in enumerate(indices) if i is not None and a not in axes]
    mask = indices[axes[0]]
    assert mask is not None
    if len(axes) > 1 or mask.type.rank > 1 or any(_extent(i) != 1 for i in others):
        ctx.refuse(
            "a mask computed at run time together with other indices is supported if the mask has "
            "one axis and each other index is a single number",
            "write to x[mask] what torch.where computes",
        )
    rows: list[Value | None] = list(indices)
    rows[axes[0]] = windows.value(windows.count(cai.size(x, axes[0])))
    at = subscript(ctx, x, rows, known, ctx.never_negative("indices"))
    before = gather(x, at)
    trailing = before.type.rank - 1 - (at.axis if at.adjacent else 0)
    if values.type.rank > trailing and values.type.shape[-1 - trailing] != 1:
        ctx.refuse(
            "values for the rows of a mask that is computed at run time, one for each, are not "
            "supported together with other indices",
            "write to x[mask] what torch.where computes",
        )
    chosen = cai.expand_dims(mask, list(range(1, 1 + trailing)))
    after = _accumulate(before, values) if accumulate else values
    return replace(x, at, cai.where(chosen, after, before))


def _extent(index: Value) -> int:
    """Return the number of elements of an index; -1 if it is dynamic."""
    return 1 if index.type.rank == 0 else int(index.type.shape[0]) if index.type.rank == 1 else -1


@decomposes(
    aten._index_put_impl.default,
    cases=[
        case(f32(4, 3), [i64(2, values=(3, -4))], f32(2, 3)),
        case(f32(4, 3), [None, i64(3, values=(2, 0, 2))], f32(), True, True),
    ],
)
def _index_put_impl(
    x: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    return aten.index_put(x, indices, values, accumulate)


def _put_masked(x: Value, axis: int, mask: Value, values: Value, accumulate: bool) -> Value:
    """Write where the mask is true; the number of true elements need not be known."""
    rank, mask_rank = x.type.rank, mask.type.rank
    trailing = rank - axis - mask_rank
    chosen = cai.expand_dims(mask, list(range(mask_rank, mask_rank + trailing)))
    expanded = _expand_values(x, axis, mask, values, trailing)
    if accumulate:
        expanded = _accumulate(x, expanded)
    return cai.where(chosen, expanded, x)


def _accumulate(x: Value, y: Value) -> Value:
    return cai.logical_or(x, y) if cai.is_bool(x) else cai.add(x, y)


def _expand_values(x: Value, axis: int, mask: Value, values: Value, trailing: int) -> Value:
    """Expand values that are given for the true elements only to all elements of the mask."""
    if values.type.rank <= trailing:
        return values
    value_axis = values.type.rank - trailing - 1  # the axis over the true elements
    if values.type.shape[value_axis] == 1:
        return cai.expand_dims(values, list(range(value_axis + 1, value_axis + mask.type.rank)))
    flat, chosen = flatten_masked(x, mask, axis)
    padding_shape = list(cai.sizes(values))
    padding_shape[value_axis] = 1  # without true elements there are no values to gather from
    source = cai.concat(value_axis, [values, cai.zeros(values, padding_shape)])
    place = value_indices(chosen)
    rows = gather(
        source, Subscript((value_axis,), (place,), cai.sizes(place), data_dependent=False)
    )
    return cai.reshape(cai.broadcast_to(rows, cai.sizes(flat)), cai.sizes(x))


def value_indices(mask: Value) -> Value:
    """Return, per element of a flat mask, how many true elements precede it: its value's index."""
    chosen = cai.scan(cai.cast(mask, torch.int32), 0, "sum")
    return cai.maximum(cai.sub(chosen, cai.i32(1)), cai.i32(0))


@lowers(
    aten.masked_scatter.default,
    cases=[
        case(f32(2, 3), b1(2, 3, values=(True, False, True, True)), f32(6)),
        case(f32(2, 3), b1(3, values=(True, False, True)), f32(2, 2)),
        case(f32(3), b1(2, 1, values=(True, False)), f32(4)),
        case(i8(4), b1(4, values=(False,)), i8(1)),
        case(c64(4), b1(4, values=(False, True)), c64(3)),
        case(b1(4), b1(4, values=(True, True, False)), b1(4)),
        case(f32(), b1(values=(True,)), f32(2)),
    ],
)
def masked_scatter(ctx: Ctx, x: Value, mask: Value, source: Value) -> Value:
    sizes = common_shape([x, mask])
    chosen = cai.broadcast_to(mask, sizes)
    if 0 in source.type.shape:  # torch requires a mask without true elements then
        return cai.broadcast_to(x, sizes)
    place = value_indices(cai.reshape(chosen, [shapes.product(sizes)]))
    values = cai.reshape(source, [shapes.product(cai.sizes(source))])
    rows = gather(values, Subscript((0,), (place,), cai.sizes(place), data_dependent=False))
    return cai.where(chosen, cai.reshape(rows, sizes), x)


@decomposes(
    aten.put.default,
    cases=[
        case(f32(2, 3), i64(2, values=(5, -6)), f32(2)),
        case(f32(2, 3), i64(2, 2, values=(5, 0, 5, 1)), f32(4), True),
        case(i32(), i64(values=(0,)), i32()),
    ],
)
def put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    flat = torch.index_put(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


@lowers(
    aten.index_add.default,
    cases=[
        case(f32(4, 3), 0, i64(5, values=(3, 0, 3, 1, 3)), f32(5, 3)),
        case(f32(2, 4), -1, i64(3, values=(3, 0, 3)), f32(2, 3), alpha=-2.5),
        case(f32(4), 0, i64(3, values=(3, 0, 3)), f32(3)),
        case(f32(), 0, i64(values=(0,)), f32()),
        case(i32(4, 2), 0, i64(3, values=(3, 0, 3)), i32(3, 2), alpha=3),
        case(f16(4, 3), 0, i64(5, values=(3, 0, 3, 1, 3)), f16(5, 3), alpha=2),
        case(bf16(3, 2), 0, i64(900, values=(2, 0)), bf16(900, 2, low=0, high=1)),
        case(c64(4, 2), 0, i64(3, values=(3, 0, 3)), c64(3, 2)),
        case(b1(4), 0, i64(2, values=(3, 0)), b1(2), alpha=False),
    ],
)
def index_add(ctx: Ctx, x: Value, dim: Axis, index: Value, source: Value, alpha: Number) -> Value:
    """Add rows; negative indices are invalid here (torch raises).

    Torch adds rows of half precision in float32, and single numbers in half precision.
    """

    def add(x: Value, index: Value, source: Value) -> Value:
        multiply = cai.logical_and if cai.is_bool(source) else cai.mul
        terms = source if alpha == 1 else multiply(source, cai.like(source, alpha))
        at = Subscript((dim,), (index,), cai.sizes(index), data_dependent=False)
        return add_at(x, at, terms)

    if 0 in index.type.shape:  # guard of a crash: a scatter without entries into a dynamic size
        return x
    sizes = ctx.dims(cai.sizes(x))
    x, place, terms = (
        cai.reshape(v, [1]) if v.type.rank == 0 else v
        for v in (x, cai.cast(index, torch.int32), source)
    )
    if x.type.rank > 1:
        contract = Composite("index_add", _INPUTS, {"axis": dim, "alpha": alpha})
        return in_float32(contract, add, x, place, terms)
    return cai.reshape(add(x, place, terms), sizes)


_INPUTS = ("input", "index", "source")


def in_float32(
    contract: Composite,
    scatter: Callable[..., Value],
    x: Value,
    index: Value,
    src: Value,
    variant: str = "",
) -> Value:
    """Scatter float16 and bfloat16 in float32, as torch does, inside a composite.

    `variant` spells what `scatter` depends on besides the contract.

    Guard of the first kind: in bfloat16, the sum of 700 numbers between 0 and 1 is 256.
    """
    dtype = cai.dtype(x)
    if dtype not in (torch.float16, torch.bfloat16):
        return scatter(x, index, src)

    def wide(input: Value, index: Value, source: Value) -> Value:
        operands = cai.cast(input, torch.float32), index, cai.cast(source, torch.float32)
        return cai.cast(scatter(*operands), dtype)

    (found,) = contract.emit(wide, x, index, src, variant=variant)
    return found
