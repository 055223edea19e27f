"""Tables of positions along an axis, computed by torch at conversion or by the program.

A table is a tensor while its inputs are static, and then becomes one constant; with dynamic sizes
it is a value. The arithmetic functions accept both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ..pointwise import rounding
from .constant_positions import pick

_NARROW_ROW = 16
_MOST_TAPS = 64
_MOST_PARTS = 8  # of a tap

Table: TypeAlias = "torch.Tensor | Value"
Term: TypeAlias = "Table | int | float"


def value(table: Term, dtype: torch.dtype = torch.int32) -> Value:
    """Return a table as a value in its own dtype; a Python number gets `dtype`."""
    if isinstance(table, Value):
        return table if table.type.rank else shapes.counted(table)
    return cai.tensor_constant(torch.as_tensor(table, dtype=_table_dtype(table, dtype)))


def _table_dtype(table: torch.Tensor | int | float, dtype: torch.dtype) -> torch.dtype:
    if not isinstance(table, torch.Tensor):
        return dtype
    return torch.int32 if table.dtype == torch.int64 else table.dtype


def _arithmetic(
    known: Callable[..., torch.Tensor], op: Callable[[Value, Value], Value]
) -> Callable[[Term, Term], Table]:
    def apply(a: Term, b: Term) -> Table:
        if isinstance(a, Value) or isinstance(b, Value):
            dtype = cai.dtype(a if isinstance(a, Value) else b)
            return op(value(a, dtype), value(b, dtype))
        return known(torch.as_tensor(a), torch.as_tensor(b))

    return apply


add = _arithmetic(torch.add, cai.add)
sub = _arithmetic(torch.sub, cai.sub)
mul = _arithmetic(torch.mul, cai.mul)
div = _arithmetic(torch.div, cai.div)
floordiv = _arithmetic(lambda a, b: torch.div(a, b, rounding_mode="floor"), cai.floor_divide)
maximum = _arithmetic(torch.maximum, cai.maximum)
minimum = _arithmetic(torch.minimum, cai.minimum)
greater = _arithmetic(torch.gt, cai.greater)
both = _arithmetic(torch.logical_and, cai.logical_and)


def _elementwise(
    known: Callable[..., torch.Tensor], op: Callable[..., Value]
) -> Callable[[Table], Table]:
    return lambda table: op(table) if isinstance(table, Value) else known(table)


absolute = _elementwise(torch.abs, cai.abs_)
floor = _elementwise(torch.floor, rounding.floor)
sine = _elementwise(torch.sin, cai.sin)


def where(condition: Table, a: Table, b: Table) -> Table:
    """Return `a` where the condition is true, else `b`; both have the same dtype."""
    if not any(isinstance(t, Value) for t in (condition, a, b)):
        return torch.where(condition, a, b)
    return cai.where(value(condition), value(a), value(b))


def total(table: Table) -> Table:
    """Return the sum of each row of a matrix, as a column."""
    if isinstance(table, Value):
        return cai.reduce_sum(table, [1])
    return table.sum(1, keepdim=True)


def number(term: Dim | float) -> Table:
    """Return a size or a number as float32."""
    if isinstance(term, Value):
        return cai.cast(value(term), torch.float32)
    return torch.tensor(term, dtype=torch.float32)


def clamp(table: Term, low: Term, high: Term) -> Table:
    return minimum(maximum(table, low), high)


def cast(table: Term, dtype: torch.dtype) -> Table:
    """Cast a table, as torch's `to`."""
    if isinstance(table, Value):
        return cai.cast(table, dtype)
    return torch.as_tensor(table).to(dtype)


def count(length: Dim) -> Table:
    """Return 0, 1, ..., length - 1."""
    if isinstance(length, int):
        return torch.arange(length)
    return cai.range_(cai.i32(0), length, cai.i32(1))


def column(table: Table) -> Table:
    """Return a vector as an `[n, 1]` column, which broadcasts with a row."""
    return cai.expand_dims(table, [1]) if isinstance(table, Value) else table[:, None]


def row(table: Table) -> Table:
    return cai.expand_dims(table, [0]) if isinstance(table, Value) else table[None, :]


def stack_columns(columns: Sequence[Table]) -> Table:
    """Concatenate vectors of the same length as the columns of a matrix."""
    as_columns = [column(c) for c in columns]
    if any(isinstance(c, Value) for c in as_columns):
        return cai.concat(1, [value(c) for c in as_columns])
    return torch.cat(as_columns, 1)


def rank_of(table: Table) -> int:
    return int(table.type.rank) if isinstance(table, Value) else table.dim()


def along(table: Table, axis: int, rank: int) -> Table:
    """Align a table with `axis` of a tensor of this rank; a matrix covers `axis` and the next."""
    others = [a for a in range(rank) if not axis <= a < axis + rank_of(table)]
    if isinstance(table, Value):
        return cai.expand_dims(table, others)
    for other in others:
        table = table.unsqueeze(other)
    return table


def is_known_true(table: Table) -> bool:
    """Return whether a condition is known to be true everywhere."""
    return isinstance(table, torch.Tensor) and bool(table.all())


@dataclass(frozen=True)
class Windows:
    """The taps of every window along one axis: their positions, and whether they are inside."""

    windows: Dim
    taps: Dim
    positions: Table  # [windows, taps], clamped to the axis
    inside: Table

    def count(self) -> Table:
        """Return how many taps of each window are inside the axis."""
        if isinstance(self.inside, torch.Tensor):
            return self.inside.sum(1)
        ones = cai.cast(self.inside, torch.int32)
        return cai.shrink_dims(cai.reduce_sum(ones, [1]), [1])

    def of(self, x: Value, axis: int) -> Value:
        """Return the windows of `x`; the taps become a new axis after `axis`."""
        dims = cai.sizes(x)
        sliced = self._sliced(x, axis) if isinstance(self.positions, torch.Tensor) else None
        if sliced is not None:
            return sliced
        flat = reshape(self.positions, [shapes.mul(self.windows, self.taps)])
        full_shape = [*dims[:axis], self.windows, self.taps, *dims[axis + 1 :]]
        return cai.reshape(take(x, flat, axis), full_shape)

    def _sliced(self, x: Value, axis: int) -> Value | None:
        """Return the windows as slices with one step, one for each tap, if few slices do."""
        assert isinstance(self.positions, torch.Tensor)
        columns = self.positions.T
        if len(columns) > _MOST_TAPS:
            return None
        taps = [pick(x, axis, column.tolist(), _MOST_PARTS) for column in columns]
        found = [cai.expand_dims(tap, [axis + 1]) for tap in taps if tap is not None]
        return cai.concat(axis + 1, found) if len(found) == len(taps) else None

    def of_table(self, table: Table, axis: int) -> Value:
        """Gather the windows of a table, in torch if it is known."""
        if isinstance(table, torch.Tensor) and isinstance(self.positions, torch.Tensor):
            taken = table.index_select(axis, self.positions.reshape(-1).long())
            return value(taken.unflatten(axis, self.positions.shape))
        return self.of(value(table), axis)

    def filled(self, x: Value, axis: int, filler: float) -> Value:
        """Gather the windows of `x`, with `filler` for taps outside the axis."""
        windows = self.of(x, axis)
        if is_known_true(self.inside):
            return windows
        inside = value(along(self.inside, axis, windows.type.rank))
        return cai.where(inside, windows, cai.like(windows, filler))


def reshape(table: Table, dims: Sequence[Dim]) -> Table:
    """Reshape a table."""
    if isinstance(table, Value):
        return cai.reshape(table, dims)
    return table.reshape([int(d) for d in dims])


def take(x: Value, positions: Table, axis: int) -> Value:
    """Select positions along `axis`; gather_nd copies rows, 8 times as fast as single elements.

    A row of less than 16 elements takes gather_nd as long as one of 16: 0.4 µs.
    """
    others = [d for a, d in enumerate(cai.sizes(x)) if a != axis]
    row = shapes.product(others)
    if isinstance(row, int) and 0 < row < _NARROW_ROW and not cai.is_complex(x):
        index = value(along(positions, axis, x.type.rank))
        others.insert(axis, cai.size(index, axis))
        return cai.gather_along_axis(x, cai.broadcast_to(index, others), axis)
    permutation = [axis, *(a for a in range(x.type.rank) if a != axis)]
    inverse = [permutation.index(a) for a in range(x.type.rank)]
    rows = cai.gather_nd(cai.transpose(x, permutation), cai.expand_dims(value(positions), [1]))
    return cai.transpose(rows, inverse)


@dataclass(frozen=True)
class Slide:
    """Geometry of a pooling window along one axis."""

    kernel: int
    stride: int
    padding: int = 0
    dilation: int = 1
    ceil: bool = False

    @property
    def reach(self) -> int:
        """Distance from the first tap of a window to just past its last tap."""
        return self.dilation * (self.kernel - 1) + 1

    def windows(self, extent: Dim) -> Dim:
        """Return the number of windows.

        In ceil mode the last must start inside axis or left padding.
        """
        span = shapes.add(extent, 2 * self.padding - self.reach)
        if not self.ceil:
            return shapes.add(shapes.floordiv(span, self.stride), 1)
        all_started = shapes.floordiv(shapes.add(span, self.stride - 1), self.stride)
        inside = shapes.floordiv(shapes.add(extent, self.padding - 1), self.stride)
        return shapes.add(shapes.minimum(all_started, inside), 1)

    def padding_to_fit(self, extent: Dim) -> tuple[Dim, Dim]:
        """Return the padding before and after the axis that makes every window fit."""
        if not self.ceil:
            return self.padding, self.padding
        last = shapes.mul(shapes.sub(self.windows(extent), 1), self.stride)
        missing = shapes.sub(shapes.add(last, self.reach - self.padding), extent)
        return self.padding, shapes.maximum(missing, self.padding)

    def is_ceiled(self, extent: Dim) -> bool:
        """Return whether every window starts inside, and none is left out that does."""
        if self.padding or not isinstance(extent, int):
            return False
        return self.windows(extent) == -(-(extent - self.reach) // self.stride) + 1

    def trimmed(self, extent: Dim) -> Slide:
        """Return a slide whose only window ends with the axis, if it is larger than the axis.

        In ceil mode a window may be of any size: EfficientNet averages 7 x 7 elements with a window
        of 1,280 x 1,280, and padding the axes to that takes 8 GB for 1,280 channels.
        """
        if not self.ceil or self.dilation > 1 or not isinstance(extent, int):
            return self
        taps = min(self.kernel - self.padding, extent)
        return Slide(taps, extent) if self.windows(extent) == 1 else self

    def starts(self, extent: Dim) -> Table:
        """Return the start of each window; negative inside the padding."""
        return sub(mul(count(self.windows(extent)), self.stride), self.padding)

    def taps(self, extent: Dim) -> Windows:
        """Return the windows along an axis of size `extent`."""
        steps = mul(count(self.kernel), self.dilation)
        wanted = add(column(self.starts(extent)), row(steps))
        inside = both(greater(wanted, -1), greater(extent, wanted))
        inner = clamp(wanted, 0, shapes.sub(extent, 1))
        return Windows(self.windows(extent), self.kernel, inner, inside)


def adaptive(extent: Dim, windows: Dim) -> Windows:
    """Return the windows of adaptive pooling: nearly equal in length, overlapping if needed."""
    numbers = count(windows)
    starts = floordiv(mul(numbers, extent), windows)
    reach = shapes.sub(windows, 1)
    ends = floordiv(add(mul(add(numbers, 1), extent), reach), windows)
    longest: Dim = shapes.add(shapes.floordiv(shapes.add(extent, reach), windows), 1)
    if not isinstance(starts, Value) and not isinstance(ends, Value):
        longest = int((ends - starts).max())
    wanted = add(column(starts), row(count(longest)))
    inside = greater(column(ends), wanted)
    return Windows(windows, longest, minimum(wanted, shapes.sub(extent, 1)), inside)
