"""Reverse axes by copying rows or elements.

`coreai.reverse` takes 63 ns for each element (coreai-core 1.0.0b3, x86): 210 ms for 64 x 224 x 224.
To gather rows of 224 elements takes 2 ns for each element, to gather single elements 7 ns.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from . import windows

_FEW = 256  # elements, which one op reverses as fast
_ROW = 64  # elements from which on rows are copied faster than elements
_LONGEST_INDEX = 1 << 13  # of positions in a row, which are stored


@dataclass(frozen=True)
class _Run:
    """One axis to reverse, or several adjacent ones: the elements before, along and behind it."""

    before: Dim
    extent: Dim
    behind: Dim

    def split(self) -> int:
        """Return a divisor of a long extent: the inner of two axes to reverse, or 1."""
        if not shapes.is_static([self.before, self.extent, self.behind]):
            return 1
        longest = _LONGEST_INDEX // int(self.behind)
        fits = (d for d in range(longest, 1, -1) if int(self.extent) % d == 0)
        return next((d for d in fits if d * int(self.behind) >= _ROW), 1)

    def positions(self) -> windows.Table:
        """Return extent - 1, ..., 1, 0."""
        last = shapes.sub(self.extent, 1)
        last = windows.value(last) if isinstance(last, Value) else last
        return windows.sub(last, windows.count(self.extent))


def flipped(x: Value, axes: Sequence[int]) -> Value:
    """Return `x` with the order along `axes` reversed."""
    extents = x.type.shape
    count = shapes.product(list(shapes.sizes_of_type(x)))
    is_small = all(e >= 0 for e in extents) and isinstance(count, int) and count <= _FEW
    if is_small or cai.is_complex(x) or cai.may_be_empty(x):
        return cai.reverse(x, axes)
    dims = cai.sizes(x)
    result = x
    for first, end in _adjacent([a for a in sorted(axes) if extents[a] != 1]):
        sides = dims[:first], dims[first:end], dims[end:]
        result = _reversed(result, _Run(*(shapes.product(side) for side in sides)))
    return cai.reshape(result, dims) if result is not x else x


def _adjacent(axes: Sequence[int]) -> list[tuple[int, int]]:
    """Return adjacent axes as ranges: to reverse them is to reverse the axis that they form."""
    groups = itertools.groupby(enumerate(axes), lambda pair: pair[1] - pair[0])
    runs = [[axis for _, axis in group] for _, group in groups]
    return [(run[0], run[-1] + 1) for run in runs]


def _reversed(x: Value, run: _Run) -> Value:
    if not isinstance(run.behind, int) or run.behind >= _ROW:
        return _rows_reversed(x, run)
    inner = run.split() if _is_long(run) else 1
    if inner == 1:
        return _elements_reversed(x, run)
    outer = int(run.extent) // inner
    x = _rows_reversed(x, _Run(run.before, outer, inner * run.behind))
    return _elements_reversed(x, _Run(shapes.mul(run.before, outer), inner, run.behind))


def _is_long(run: _Run) -> bool:
    length = shapes.mul(run.extent, run.behind)
    return isinstance(length, int) and length > _LONGEST_INDEX


def _rows_reversed(x: Value, run: _Run) -> Value:
    """Gather rows of all elements behind the axis."""
    starts = windows.mul(windows.count(run.before), _term(run.extent))
    count = shapes.mul(run.before, run.extent)
    index = windows.add(windows.column(starts), windows.row(run.positions()))
    index = windows.reshape(index, [count, 1])
    return cai.gather_nd(cai.reshape(x, [count, run.behind]), windows.value(index))


def _elements_reversed(x: Value, run: _Run) -> Value:
    """Gather elements along the last axis, which also holds the elements behind the axis."""
    behind = windows.row(windows.count(run.behind))
    index = windows.add(windows.mul(windows.column(run.positions()), _term(run.behind)), behind)
    length = shapes.mul(run.extent, run.behind)
    table = windows.value(windows.reshape(index, [1, length]))
    rows = cai.reshape(x, [run.before, length])
    return cai.gather_along_axis(rows, cai.broadcast_to(table, [run.before, length]), 1)


def _term(dim: Dim) -> windows.Term:
    return windows.value(dim) if isinstance(dim, Value) else dim
