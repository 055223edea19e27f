"""Lower assignments to a part of a tensor: `x[a:b] = y`, `x[i, :, j] += y`, `x[mask] = y`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, Number, case, decomposes, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64
from ...torch_compat import aten
from .._lib.subscript import (
    Subscript,
    common_shape,
    concat_columns,
    gather,
    known_places,
    linear,
    per_part,
    subscript,
)
from .gather import bounds, flatten_masked, index_bounds, reaches_end

_LAST = 2**63 - 1
_FEW = 2  # longest row that is written element by element
_SMALL = 1_024  # elements of a constant index that may be compared at load


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
    if _writes_few_elements(x, at):
        return _replace_elements(x, at, values)
    columns, layout = _coordinates(x, at)
    updates = cai.broadcast_to(values, [*layout, *cai.sizes(x)[at.axes[-1] + 1 :]])
    return cai.scatter_nd(x, concat_columns(columns, layout), updates)


def _writes_few_elements(x: Value, at: Subscript) -> bool:
    """Return whether the rows are so short that writing their elements is faster.

    A written row takes 0.5 µs, a written element 0.07 to 0.16 µs (coreai-core 1.0.0b3, x86).
    """
    width = shapes.product(cai.sizes(x)[at.axes[-1] + 1 :])
    if not isinstance(width, int) or width > _FEW or cai.is_complex(x) or at.known:
        return False
    if any(cai.may_be_empty(v) or 0 in v.type.shape for v in (x, *at.columns)):
        return False
    tables = [column for column in at.columns if shapes.is_constant(column)]
    is_computed = len(tables) < len(at.columns)  # the compiler would fold places of constants
    return is_computed and all(math.prod(table.type.shape) <= _SMALL for table in tables)


def _replace_elements(x: Value, at: Subscript, values: Value) -> Value:
    """Write element by element into the flattened tensor."""
    sizes = cai.sizes(x)
    columns, layout = _coordinates(x, at)
    rows, row = sizes[: at.axes[-1] + 1], sizes[at.axes[-1] + 1 :]
    width, total, count = shapes.product(row), shapes.product(rows), shapes.product(layout)
    assert isinstance(width, int)
    flat = cai.reshape(x, [shapes.mul(total, width)])
    place = cai.reshape(cai.broadcast_to(linear(columns, rows), layout), [count])
    place = cai.where(cai.less(place, cai.i32(0)), shapes.number(total), place)
    if width > 1:
        column = cai.tensor_constant(torch.arange(width, dtype=torch.int32), "columns")
        first = cai.expand_dims(cai.mul(place, cai.i32(width)), [1])
        place = cai.reshape(cai.add(first, column), [shapes.mul(count, width)])
    updates = cai.reshape(cai.broadcast_to(values, [*layout, *row]), [shapes.mul(count, width)])
    written = cai.scatter_along_axis(flat, _checked(place, flat), updates, 0)
    return cai.reshape(written, sizes)


def _checked(place: Value, flat: Value) -> Value:
    """Return the places; the program fails if one is out of bounds, as torch does.

    A scatter would write outside the tensor. A gather of the greatest place fails; its result
    enters the bound so that it is not dropped.
    """
    greatest = cai.reduce_max(place, [0])
    found = cai.gather_along_axis(flat, greatest, 0)
    is_itself = cai.raw_cast(cai.equal(found, found), torch.int32)
    return cai.minimum(place, cai.add(greatest, is_itself))


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


def _coordinates(x: Value, at: Subscript) -> tuple[list[Value], tuple[Dim, ...]]:
    """Return the coordinates of the rows that `x[at]` addresses, per axis, and their layout.

    The axes that are not indexed are enumerated, so that the tensor needs no transpose.
    """
    sizes, rows = cai.sizes(x), _Rows(at)
    layout = rows.layout(sizes)
    columns = []
    for axis in range(at.axes[-1] + 1):
        if axis in at.axes:
            column = at.columns[at.axes.index(axis)]
            rank = column.type.rank
            columns.append(cai.expand_dims(column, list(range(rank, rank + rows.after))))
        else:
            others = [a for a in range(len(layout)) if a != rows.position(axis)]
            columns.append(cai.expand_dims(_count(sizes[axis]), others))
    return columns, layout


def _known_place(at: Subscript, sizes: Sequence[Dim]) -> Value | None:
    """Return the position in the flattened axes if torch can compute it, else None.

    The overlapping frames of `torch.istft` of 10 s would compare 400,400 constants at each load.
    """
    extents = sizes[: at.axes[-1] + 1]
    if not at.known or not shapes.is_static(extents):
        return None
    rows, columns = _Rows(at), []
    rank = len(rows.layout(sizes))
    for axis, extent in enumerate(extents):
        if axis in at.axes:
            column = at.known[at.axes.index(axis)]
            columns.append(column.reshape(*column.shape, *[1] * rows.after))
        else:
            shape = [-1 if a == rows.position(axis) else 1 for a in range(rank)]
            columns.append(torch.arange(extent).reshape(shape))
    return known_places(columns, [int(extent) for extent in extents])


class _Rows:
    """The layout of the rows that a subscript addresses: axes without index around the entries."""

    def __init__(self, at: Subscript) -> None:
        self._kept = [a for a in range(at.axes[-1]) if a not in at.axes]
        self._shape = at.shape
        self._before = at.axis if at.adjacent else 0  # axes without index before the entries
        self.after = len(self._kept) - self._before

    def layout(self, sizes: Sequence[Dim]) -> tuple[Dim, ...]:
        before, after = self._kept[: self._before], self._kept[self._before :]
        return (*[sizes[a] for a in before], *self._shape, *[sizes[a] for a in after])

    def position(self, axis: int) -> int:
        """Return where the layout has an axis without index."""
        place = self._kept.index(axis)
        return place if place < self._before else place + len(self._shape)


def _count(extent: Dim) -> Value:
    """Return 0, 1, ..., extent - 1."""
    if isinstance(extent, int):
        return cai.tensor_constant(torch.arange(extent, dtype=torch.int32), "positions")
    return cai.range_(cai.i32(0), extent, cai.i32(1))


def add_at(x: Value, at: Subscript, values: Value) -> Value:
    """Return `x` after `x[at] += values`; repeated positions accumulate."""
    sizes = cai.sizes(x)
    layout = _Rows(at).layout(sizes)
    rows, row = sizes[: at.axes[-1] + 1], sizes[at.axes[-1] + 1 :]
    width, count = shapes.product(row), shapes.product(layout)
    known = _known_place(at, sizes)
    found = linear(_coordinates(x, at)[0], rows) if known is None else known
    place = cai.reshape(cai.broadcast_to(found, layout), [count])
    index = cai.broadcast_to(cai.expand_dims(place, [1]), [count, width])
    terms = cai.reshape(cai.broadcast_to(values, [*layout, *row]), [count, width])
    flat = cai.reshape(x, [shapes.product(rows), width])
    return cai.reshape(scatter_reduced(flat, index, terms, 0, "add"), sizes)


def scatter_reduced(x: Value, index: Value, terms: Value, axis: int, mode: str) -> Value:
    """Scatter sums or products sequentially in the dtype of `x`, as torch does.

    Integers are computed in int32 and wrapped after: the runtime (1.0.0b3) aborts the process on an
    integer overflow, for example int8 100 + 100.
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
    ],
)
def index_put(
    ctx: Ctx, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    known = ctx.known_each("indices")
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    terms = cai.cast(values, cai.dtype(x))
    masks = [(a, i) for a, i in given if known[a] is None and cai.is_bool(i)]
    if masks:
        if len(given) > 1:
            ctx.refuse("a mask computed at run time together with other indices is not supported")
        return _put_masked(x, *masks[0], terms, accumulate)
    at = subscript(ctx, x, indices, known)
    if 0 in at.shape:
        return x
    return add_at(x, at, terms) if accumulate else replace(x, at, terms)


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


@decomposes(
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
    ],
)
def index_add(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: complex = 1
) -> torch.Tensor:
    """Add rows in float32 if they are float16 or bfloat16, as torch does; not single numbers.

    Torch's decomposition rounds each sum: 700 numbers between 0 and 1 in bfloat16 sum to 256.
    """
    if x.dim() == 0:
        vectors = x.reshape(1), 0, index.reshape(1), source.reshape(1)
        return index_add(*vectors, alpha=alpha).reshape(())
    is_wide = x.dim() > 1 and x.dtype in (torch.float16, torch.bfloat16)
    dtype = torch.float32 if is_wide else x.dtype
    terms = source.to(dtype) if alpha == 1 else source.to(dtype) * alpha
    places = [*[None] * (dim % x.dim()), index.reshape(-1)]
    total: torch.Tensor = aten.index_put.default(x.to(dtype), places, terms, accumulate=True)
    return total.to(x.dtype)
