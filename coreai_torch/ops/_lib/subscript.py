"""Index tensors of a subscript such as `x[i, :, j]`: wrapped, broadcast and concatenated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ...ir import dialect as cai
from ...ir import shapes, types
from ...ir.dialect import Dim, Value
from ...lowering import Ctx

# A gathered row takes 0.5 µs up to 64 elements. A gathered element takes 10 ns, and 10 ns more if
# its index is broadcast along the row, or 3 ns more if its index is computed (coreai-core 1.0.0b3,
# x86).
_NARROW_ROW, _BROADCAST_ROW = 64, 16


@dataclass(frozen=True)
class Subscript:
    """The indices of a subscript: one index tensor per indexed axis, which broadcast together."""

    axes: tuple[int, ...]
    columns: tuple[Value, ...]  # si32, not negative
    shape: tuple[Dim, ...]  # of the broadcast columns
    data_dependent: bool  # the number of entries depends on data and may be zero
    known: tuple[torch.Tensor, ...] = ()  # the columns, if all are constant

    @property
    def adjacent(self) -> bool:
        """Whether the indexed axes are adjacent.

        If not, torch moves the result's index axes first.
        """
        return self.axes == tuple(range(self.axes[0], self.axes[-1] + 1))

    @property
    def axis(self) -> int:
        """Position of the index axes in the result."""
        return self.axes[0] if self.adjacent else 0


def subscript(
    ctx: Ctx, x: Value, indices: Sequence[Value | None], known: Sequence[torch.Tensor | None]
) -> Subscript:
    """Read a list of index tensors and masks; `None` stands for a full slice."""
    axes: list[int] = []
    columns: list[Value] = []
    tables: list[torch.Tensor | None] = []
    data_dependent = False
    axis = 0
    for i, index in enumerate(indices):
        if index is None:
            axis += 1
            continue
        constant = known[i] if i < len(known) else None
        if cai.is_bool(index):
            new_columns = _mask_columns(ctx, index, constant)
            data_dependent = data_dependent or constant is None
        else:
            new_columns = [wrap_index(index, cai.size(x, axis), constant)]
        tables += _known_columns(constant, x.type.shape[axis]) or [None]
        axes += range(axis, axis + len(new_columns))
        columns += new_columns
        axis += len(new_columns)
    found = tuple(table for table in tables if table is not None)
    all_known = found if len(found) == len(columns) else ()
    return Subscript(tuple(axes), tuple(columns), common_shape(columns), data_dependent, all_known)


def _known_columns(constant: torch.Tensor | None, extent: int) -> list[torch.Tensor]:
    """Return the columns of a constant index or mask, not negative; none for other indices."""
    if constant is None or (constant.dtype != torch.bool and extent == types.DYNAMIC):
        return []
    if constant.dtype == torch.bool:
        return list(constant.nonzero(as_tuple=True))
    return [torch.where(constant < 0, constant + extent, constant)]


def _mask_columns(ctx: Ctx, mask: Value, constant: torch.Tensor | None) -> list[Value]:
    if mask.type.rank == 0:
        ctx.refuse("a rank-0 mask is not supported", "pass a mask of rank 1 or higher")
    if constant is not None:
        return [
            cai.tensor_constant(column.to(torch.int32), "positions")
            for column in constant.nonzero(as_tuple=True)
        ]
    coordinates = cai.non_zero(mask)
    return [
        cai.shrink_dims(cai.slice_axis(coordinates, 1, i, i + 1), [1])
        for i in range(mask.type.rank)
    ]


def wrap_index(index: Value, extent: Dim, constant: torch.Tensor | None = None) -> Value:
    """Return an index as si32, with negative entries wrapped to count from the start."""
    position = cai.cast(index, torch.int32)
    if constant is not None and bool((constant >= 0).all()):
        return position
    if constant is not None and isinstance(extent, int):
        positions = torch.where(constant < 0, constant + extent, constant)
        return cai.tensor_constant(positions.to(torch.int32), "positions")
    return cai.where(
        cai.less(position, cai.i32(0)), cai.add(position, shapes.number(extent)), position
    )


def common_shape(values: Sequence[Value]) -> tuple[Dim, ...]:
    """Return the shape that values broadcast to."""
    rank = max(v.type.rank for v in values)
    return tuple(_common_size(values, axis - rank) for axis in range(rank))


def _common_size(values: Sequence[Value], axis: int) -> Dim:
    """Return one size of the common shape (axis counted from the end); prefer a static size."""
    candidates = [v for v in values if v.type.rank >= -axis]
    static_sizes = [v.type.shape[axis] for v in candidates]
    for extent in static_sizes:
        if extent not in (1, types.DYNAMIC):
            return int(extent)
    for value, extent in zip(candidates, static_sizes, strict=True):
        if extent == types.DYNAMIC:
            return cai.size(value, axis % value.type.rank)
    return 1


def gather(x: Value, at: Subscript) -> Value:
    """Return `x[at]`."""
    if cai.is_complex(x):
        return per_part(lambda part: gather(part, at), x)
    if not at.adjacent:
        rest = [a for a in range(x.type.rank) if a not in at.axes]
        leading = tuple(range(len(at.axes)))
        transposed = cai.transpose(x, [*at.axes, *rest])
        return gather(transposed, replace(at, axes=leading))
    sizes = cai.sizes(x)
    row = shapes.product(sizes[at.axes[-1] + 1 :])
    may_be_empty = at.data_dependent and len(at.axes) > 1
    by_element = _can_compute_places(x, at, row)
    narrow = _NARROW_ROW if by_element else _BROADCAST_ROW
    if at.axis == 0 and (may_be_empty or not isinstance(row, int) or row >= narrow):
        return cai.gather_nd(x, concat_columns(at.columns, at.shape))
    if by_element:
        return _gather_rows(x, at, sizes)
    return _gather_transposed(x, at) if may_be_empty else _gather_flat(x, at, sizes)


def _can_compute_places(x: Value, at: Subscript, row: Dim) -> bool:
    """Return whether `_gather_rows` may be used, which is faster for rows of some elements.

    It computes places, which must not be constants: the compiler would fold them.
    """
    if not isinstance(row, int) or row < 2 or at.data_dependent:
        return False
    if any(cai.may_be_empty(v) or 0 in v.type.shape for v in (x, *at.columns)):
        return False
    is_small = types.DYNAMIC in x.type.shape or math.prod(x.type.shape) < 2**31
    return is_small and not any(shapes.is_constant(column) for column in at.columns)


def gather_rows(x: Value, index: Value) -> Value:
    """Return the entries of the first axis that a tensor of indices names."""
    at = Subscript((0,), (index,), cai.sizes(index), data_dependent=False)
    return gather(x, at)


def _gather_rows(x: Value, at: Subscript, sizes: Sequence[Dim]) -> Value:
    """View `x` as a table of rows, and gather rows, or their elements if they are narrow."""
    lead, last = at.axis, at.axis + len(at.axes)
    before, extents, after = sizes[:lead], sizes[lead:last], sizes[last:]
    extent, width, count = (shapes.product(part) for part in (extents, after, at.shape))
    batch = shapes.product(before)
    found = cai.broadcast_to(linear(at.columns, extents), at.shape)
    place = cai.reshape(found, [count])
    rows = shapes.mul(batch, extent)
    if before:
        inside = cai.logical_and(
            cai.less(place, shapes.number(extent)), cai.greater(place, cai.i32(-1))
        )
        place = cai.where(inside, place, shapes.number(rows))  # not a row of the next batch
        place = cai.reshape(cai.add(_starts(batch, extent), place), [shapes.mul(batch, count)])
    assert isinstance(width, int)
    if width >= _NARROW_ROW:
        found = cai.gather_nd(cai.reshape(x, [rows, width]), cai.expand_dims(place, [1]))
    else:
        column = cai.tensor_constant(torch.arange(width, dtype=torch.int32), "columns")
        places = cai.add(cai.expand_dims(cai.mul(place, cai.i32(width)), [1]), column)
        elements = shapes.product(cai.sizes(places))
        flat = cai.reshape(x, [shapes.mul(rows, width)])
        found = cai.gather_along_axis(flat, cai.reshape(places, [elements]), 0)
    return cai.reshape(found, [*before, *at.shape, *after])


def _starts(batch: Dim, extent: Dim) -> Value:
    """Return the first row of each batch, as a column."""
    if isinstance(batch, int) and isinstance(extent, int):
        table = torch.arange(batch, dtype=torch.int32).unsqueeze(1) * extent
        return cai.tensor_constant(table, "starts")
    numbers = cai.range_(cai.i32(0), shapes.number(batch), cai.i32(1))
    return cai.expand_dims(cai.mul(numbers, shapes.number(extent)), [1])


def _gather_transposed(x: Value, at: Subscript) -> Value:
    """Move the indexed axes first and use gather_nd.

    This needs no arithmetic on the entries: arithmetic on a zero-size operand crashes the runtime.
    """
    rank, lead, entries = x.type.rank, at.axis, len(at.shape)
    rest = [a for a in range(rank) if a not in at.axes]
    gathered = cai.gather_nd(
        cai.transpose(x, [*at.axes, *rest]), concat_columns(at.columns, at.shape)
    )
    before = range(entries, entries + lead)
    after = range(entries + lead, gathered.type.rank)
    return cai.transpose(gathered, [*before, *range(entries), *after])


def _gather_flat(x: Value, at: Subscript, sizes: Sequence[Dim]) -> Value:
    """Flatten the indexed axes into one and gather along it, element by element."""
    lead, last = at.axis, at.axis + len(at.axes)
    before, extents, after = sizes[:lead], sizes[lead:last], sizes[last:]
    flat = cai.reshape(x, [*before, shapes.product(extents), *after])
    if at.known and len(at.known) > 1 and shapes.is_static(extents):
        entries = known_places(at.known, [int(extent) for extent in extents])
    else:
        entries = linear(at.columns, extents)
    if len(at.shape) == 1:  # a reshape fails if a mask selects nothing
        count, vector = at.shape[0], cai.broadcast_to(entries, at.shape)
    else:
        count = shapes.product(at.shape)
        vector = cai.reshape(cai.broadcast_to(entries, at.shape), [count])
    ones = [a for a in range(lead + 1 + len(after)) if a != lead]
    index = cai.broadcast_to(cai.expand_dims(vector, ones), [*before, count, *after])
    gathered = cai.gather_along_axis(flat, index, lead)
    return gathered if len(at.shape) == 1 else cai.reshape(gathered, [*before, *at.shape, *after])


def linear(columns: Sequence[Value], extents: Sequence[Dim]) -> Value:
    """Return positions in the flattened axes; a position out of bounds stays out of bounds."""
    if len(columns) == 1:
        return columns[0]
    total = shapes.product(extents)
    position: Value | None = None
    stride: Dim = 1
    for column, extent in zip(reversed(columns), reversed(extents), strict=True):
        scaled = column if stride == 1 else cai.mul(column, shapes.number(stride))
        # Without the check, column 7 of a row of 5 would be column 2 of the next row.
        inside = cai.logical_and(
            cai.less(column, shapes.number(extent)), cai.greater(column, cai.i32(-1))
        )
        term = cai.where(inside, scaled, shapes.number(total))
        position = term if position is None else cai.add(position, term)
        stride = shapes.mul(stride, extent)
    assert position is not None
    return position


def known_places(columns: Sequence[torch.Tensor], extents: Sequence[int]) -> Value:
    """Return what `linear` does for constant columns, computed in torch."""
    place, is_inside = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool)
    for column, extent in zip(columns, extents, strict=True):
        place = place * extent + column
        is_inside = is_inside & (column >= 0) & (column < extent)
    place = torch.where(is_inside, place, math.prod(extents))
    return cai.tensor_constant(place.to(torch.int32), "positions")


def concat_columns(columns: Sequence[Value], shape: Sequence[Dim]) -> Value:
    """Concatenate index columns into the index tensor that `gather_nd` and `scatter_nd` read."""
    broadcast = [cai.broadcast_to(c, shape) for c in columns]
    return cai.concat(len(shape), [cai.expand_dims(c, [len(shape)]) for c in broadcast])


def per_part(fn: Callable[..., Value], *operands: Value) -> Value:
    """Apply a function of real values to the real and imaginary parts of complex operands."""
    real = fn(*(cai.real_part(o) for o in operands))
    return cai.create_complex(real, fn(*(cai.imaginary_part(o) for o in operands)))
