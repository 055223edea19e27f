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
from . import windows
from .constant_positions import pick
from .windows import Table


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
    ctx: Ctx,
    x: Value,
    indices: Sequence[Value | None],
    known: Sequence[torch.Tensor | None],
    wrapped: Sequence[bool] = (),
) -> Subscript:
    """Read a list of index tensors and masks; `None` stands for a full slice.

    `wrapped` marks the indices that are known to be at least 0.
    """
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
            is_wrapped = i < len(wrapped) and wrapped[i]
            extent = cai.size(x, axis)
            new_columns = [wrap_index(index, extent, constant, is_wrapped=is_wrapped)]
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


def wrap_index(
    index: Value, extent: Dim, constant: torch.Tensor | None = None, *, is_wrapped: bool = False
) -> Value:
    """Return an index as si32, with negative entries wrapped to count from the start.

    Guard of the first kind, for index -1: `gather_nd` reads another row, `scatter_nd` crashes.
    """
    position = cai.cast(index, torch.int32)
    if is_wrapped or (constant is not None and bool((constant >= 0).all())):
        return position
    if constant is not None and isinstance(extent, int):
        positions = torch.where(constant < 0, constant + extent, constant)
        return cai.tensor_constant(positions.to(torch.int32), "positions")
    size = shapes.number(extent)
    return cai.modulo(cai.add(position, size), size)


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
    found = picked(x, at)
    if found is not None:
        return found
    if _is_one_inner_vector(at) and not cai.is_complex(x):
        return _gather_along(x, at.axes[0], at.columns[0])
    columns, layout = coordinates(x, at)
    return cai.gather_nd(x, concat_columns(columns, layout))


def _is_one_inner_vector(at: Subscript) -> bool:
    """Return whether one vector indexes an axis other than the first, as in `x[:, i]`."""
    if len(at.axes) > 1 or at.axes[0] == 0 or at.data_dependent:
        return False
    return bool(at.columns[0].type.rank == 1)


def _gather_along(x: Value, axis: int, vector: Value) -> Value:
    sizes = list(cai.sizes(x))
    sizes[axis] = cai.size(vector, 0)
    along = cai.expand_dims(vector, [a for a in range(x.type.rank) if a != axis])
    return cai.gather_along_axis(x, cai.broadcast_to(along, sizes), axis)


def picked(x: Value, at: Subscript) -> Value | None:
    """Return the elements at constant positions by slices, unless there are too many."""
    if not at.known:
        return None
    if not at.adjacent:
        rest = [a for a in range(x.type.rank) if a not in at.axes]
        leading = tuple(range(len(at.axes)))
        return picked(cai.transpose(x, [*at.axes, *rest]), replace(at, axes=leading))
    sizes = cai.sizes(x)
    lead, last = at.axis, at.axis + len(at.axes)
    extents = x.type.shape[lead:last]
    inside = all(
        bool(((column >= 0) & (column < extent)).all())
        for column, extent in zip(at.known, extents, strict=True)
    )
    if not inside or not shapes.is_static(at.shape):
        return None
    if not _cover_separate_axes(at):
        if types.DYNAMIC in extents:
            return None
        flat = cai.reshape(x, [*sizes[:lead], math.prod(extents), *sizes[last:]])
        places = torch.zeros((), dtype=torch.int64)
        for column, extent in zip(at.known, extents, strict=True):
            places = places * int(extent) + column
        found = pick(flat, lead, places.flatten().tolist())
    else:
        found = x
        for axis, column in enumerate(at.known, lead):
            found = None if found is None else pick(found, axis, column.flatten().tolist())
    return None if found is None else cai.reshape(found, [*sizes[:lead], *at.shape, *sizes[last:]])


def _cover_separate_axes(at: Subscript) -> bool:
    """Return whether each column varies along other axes, as in `x[i[:, None], j]`."""
    rank, reached = len(at.shape), 0
    for column in at.known:
        first = rank - column.dim()
        varies = [first + axis for axis, size in enumerate(column.shape) if size != 1]
        if varies and varies[0] < reached:
            return False
        reached = varies[-1] + 1 if varies else reached
    return True


def gather_rows(x: Value, index: Value) -> Value:
    """Return the entries of the first axis that a tensor of indices names."""
    return gather(x, Subscript((0,), (index,), cai.sizes(index), data_dependent=False))


def coordinates(x: Value, at: Subscript) -> tuple[list[Table], tuple[Dim, ...]]:
    """Return the coordinates of the rows that `x[at]` addresses, per axis, and their layout.

    The axes that are not indexed are enumerated, so that the tensor needs no transpose.
    """
    sizes, rows = cai.sizes(x), Rows(at)
    layout = rows.layout(sizes)
    columns: list[Table] = []
    for axis in range(at.axes[-1] + 1):
        if axis in at.axes:
            column = (at.known or at.columns)[at.axes.index(axis)]
            columns.append(windows.along(column, 0, windows.rank_of(column) + rows.after))
        else:
            columns.append(
                windows.along(windows.count(sizes[axis]), rows.position(axis), len(layout))
            )
    return columns, layout


class Rows:
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


def linear(columns: Sequence[Table], extents: Sequence[Dim]) -> Table:
    """Return positions in the flattened axes."""
    position, stride = columns[-1], extents[-1]
    for column, extent in zip(columns[-2::-1], extents[-2::-1], strict=True):
        position = windows.add(position, windows.mul(column, stride))
        stride = shapes.mul(stride, extent)
    return position


def concat_columns(columns: Sequence[Table], shape: Sequence[Dim]) -> Value:
    """Concatenate index columns into the index tensor that `gather_nd` and `scatter_nd` read."""
    values = [c if isinstance(c, Value) else windows.value(c) for c in columns]
    if len(values) == 1:  # it has the shape
        return cai.expand_dims(values[0], [len(shape)])
    broadcast = [cai.broadcast_to(v, shape) for v in values]
    return cai.concat(len(shape), [cai.expand_dims(c, [len(shape)]) for c in broadcast])


def per_part(fn: Callable[..., Value], *operands: Value) -> Value:
    """Apply a function of real values to the real and imaginary parts of complex operands."""
    real = fn(*(cai.real_part(o) for o in operands))
    return cai.create_complex(real, fn(*(cai.imaginary_part(o) for o in operands)))
