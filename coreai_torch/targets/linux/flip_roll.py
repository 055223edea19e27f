"""Flip and roll by copying rows or elements.

To gather rows of 224 elements takes 2 ns for each element, and to gather single elements 7 ns.
`coreai.reverse` takes 63 ns, `coreai.slice` 15 ns and `coreai.concat` 30 ns (coreai-core 1.0.0b3,
x86): to reverse 64 x 224 x 224 takes 210 ms.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, Shape, lowers
from ...ops._lib import windows
from ...ops._lib.windows import Table
from ...ops.shape.reshape import rolled as rolled_slices
from ...torch_compat import aten

_MOST_INDICES = 1 << 18  # a constant of 1 MiB
_FEW = 256  # elements, which one op reverses as fast
_ROW = 64  # elements from which on rows are copied faster than elements
_LONGEST_INDEX = 1 << 13  # of positions in a row, which are stored


@dataclass(frozen=True)
class Run:
    """One axis, or several adjacent ones: the elements before, along and behind it."""

    before: Dim
    extent: Dim
    behind: Dim

    @classmethod
    def of(cls, x: Value, first: int, end: int) -> Run:
        """Return the axes from `first` to `end - 1`."""
        dims = cai.sizes(x)
        sides = dims[:first], dims[first:end], dims[end:]
        return cls(*(shapes.product(side) for side in sides))

    def take(self, x: Value, positions: Table) -> Value:
        """Return `x`, in any shape, with the elements at `positions` of the axis."""
        if not isinstance(self.behind, int) or self.behind >= _ROW:
            return self._rows(x, positions)
        return self._elements(x, positions)

    def _rows(self, x: Value, positions: Table) -> Value:
        """Gather rows of all elements behind the axis."""
        starts = windows.mul(windows.count(self.before), _term(self.extent))
        count = shapes.mul(self.before, self.extent)
        index = windows.add(windows.column(starts), windows.row(positions))
        index = windows.reshape(index, [count, 1])
        return cai.gather_nd(cai.reshape(x, [count, self.behind]), windows.value(index))

    def _elements(self, x: Value, positions: Table) -> Value:
        """Gather elements along the last axis, which also holds the elements behind the axis."""
        index = positions
        if self.behind != 1:
            behind = windows.row(windows.count(self.behind))
            index = windows.add(windows.mul(windows.column(index), _term(self.behind)), behind)
        length = shapes.mul(self.extent, self.behind)
        table = windows.value(windows.reshape(index, [1, length]))
        rows = cai.reshape(x, [self.before, length])
        if not isinstance(self.before, int) or self.before != 1:
            table = cai.broadcast_to(table, [self.before, length])
        return cai.gather_along_axis(rows, table, 1)


def can_move(x: Value) -> bool:
    """Return whether elements of the operand can be gathered, which may not be empty."""
    return not (cai.is_complex(x) or cai.may_be_empty(x) or 0 in x.type.shape)


def flipped(x: Value, axes: Sequence[int]) -> Value:
    """Return `x` with the order along `axes` reversed."""
    dims = cai.sizes(x)
    count = shapes.product(dims)
    if not can_move(x) or (isinstance(count, int) and count <= _FEW):
        return cai.reverse(x, axes)
    result = x
    for first, end in _adjacent([a for a in sorted(axes) if x.type.shape[a] != 1]):
        result = _reversed(result, Run.of(x, first, end))
    return cai.reshape(result, dims) if result is not x else x


def _adjacent(axes: Sequence[int]) -> list[tuple[int, int]]:
    """Return adjacent axes as ranges: to reverse them is to reverse the axis that they form."""
    groups = itertools.groupby(enumerate(axes), lambda pair: pair[1] - pair[0])
    runs = [[axis for _, axis in group] for _, group in groups]
    return [(run[0], run[-1] + 1) for run in runs]


def _reversed(x: Value, run: Run) -> Value:
    inner = _inner(run)
    if inner == 1:
        return run.take(x, _descending(run.extent))
    outer = int(run.extent) // inner
    rows = Run(run.before, outer, shapes.mul(run.behind, inner))
    x = rows.take(x, _descending(outer))
    rest = replace(run, before=shapes.mul(run.before, outer), extent=inner)
    return rest.take(x, _descending(inner))


def _inner(run: Run) -> int:
    """Return the size of the inner of two axes to reverse, or 1 to reverse the axis at once.

    Elements of a long axis need a long table of positions.
    """
    if not isinstance(run.extent, int) or not isinstance(run.behind, int):
        return 1
    if run.behind >= _ROW or run.extent * run.behind <= _LONGEST_INDEX:
        return 1
    sizes = range(_LONGEST_INDEX // run.behind, 1, -1)
    fits = (n for n in sizes if run.extent % n == 0 and n * run.behind >= _ROW)
    return next(fits, 1)


def _descending(extent: Dim) -> Table:
    """Return extent - 1, ..., 1, 0."""
    return windows.sub(_term(shapes.sub(extent, 1)), windows.count(extent))


def rolled(x: Value, axis: int, shift: Dim) -> Value:
    """Return `x` with its elements moved along an axis; those moved beyond its end come first."""
    run = Run.of(x, axis, axis + 1)
    places = windows.sub(windows.count(run.extent), _term(shift))
    extent = _term(run.extent)
    places = windows.sub(places, windows.mul(windows.floordiv(places, extent), extent))
    return cai.reshape(run.take(x, places), cai.sizes(x))


def _term(dim: Dim) -> windows.Term:
    return windows.value(dim) if isinstance(dim, Value) else dim


@lowers(
    aten.flip.default, target="linux", reason="reverse takes 63 ns for each element, a gather 7"
)
def flip(ctx: Ctx, x: Value, dims: Sequence[int]) -> Value:
    return flipped(x, [d % x.type.rank for d in dims]) if x.type.rank else x


@lowers(
    aten.roll.default,
    target="linux",
    reason="[1, 224, 224, 96] takes 530 ms with slices and concat, 36 ms with gathered rows",
)
def roll(ctx: Ctx, x: Value, shifts: Shape, dims: Sequence[int]) -> Value:
    if x.type.rank == 0 or 0 in x.type.shape:
        return x
    if not dims:
        whole = cai.reshape(x, [shapes.product(cai.sizes(x))])
        return cai.reshape(_rolled(whole, shifts, [0]), cai.sizes(x))
    return _rolled(x, shifts, [dim % x.type.rank for dim in dims])


def _rolled(x: Value, shifts: Sequence[Dim], axes: Sequence[int]) -> Value:
    if not can_move(x):
        return rolled_slices(x, shifts, axes)
    first, end = min(axes), max(axes) + 1
    middle = cai.sizes(x)[first:end]
    if shapes.is_static([*middle, *shifts]) and shapes.product(middle) <= _most_indices(x):
        return _rolled_rows(x, shifts, axes, first, end)
    for shift, axis in zip(shifts, axes, strict=True):
        x = rolled(x, axis, shift)
    return x


def _most_indices(x: Value) -> int:
    """Return the most positions to gather: more for a vector, whose slices take 40 ns each."""
    return 4 * _MOST_INDICES if x.type.rank == 1 else _MOST_INDICES


def _rolled_rows(
    x: Value, shifts: Sequence[Dim], axes: Sequence[int], first: int, end: int
) -> Value:
    total = dict.fromkeys(range(first, end), 0)
    for shift, axis in zip(shifts, axes, strict=True):
        total[axis] += int(shift)
    index = torch.zeros(1, dtype=torch.int64)
    for axis, shift in total.items():
        size = x.type.shape[axis]
        place = (torch.arange(size) - shift) % size
        index = (index[:, None] * size + place).reshape(-1)
    return cai.reshape(Run.of(x, first, end).take(x, index), cai.sizes(x))
