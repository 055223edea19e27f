"""What each place of a resized axis reads: the taps of torch's modes, and their weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from . import windows as tables
from .windows import Table, Windows


@dataclass(frozen=True)
class Line:
    """One axis to resize: from how many to how many, and by what factor if that was said."""

    extent: Dim
    out: Dim
    factor: float | None
    align: bool

    def step(self) -> Table:
        """How far the source moves for one step of the result."""
        if self.align:
            spaces = shapes.sub(self.out, 1)
            spans = shapes.mul(shapes.sub(self.extent, 1), shapes.minimum(spaces, 1))
            return tables.div(tables.number(spans), tables.number(shapes.maximum(spaces, 1)))
        if self.factor is not None and self.factor > 0:
            return tables.number(1.0 / self.factor)
        return tables.div(tables.number(self.extent), tables.number(self.out))

    def numbers(self) -> Table:
        """0.0, 1.0, 2.0, ... along the result."""
        return tables.cast(tables.count(self.out), torch.float32)

    def centres(self) -> Table:
        """Where each place of the result lies in the source, whose first place is 0."""
        if self.align:
            return tables.mul(self.numbers(), self.step())
        return tables.sub(tables.mul(tables.add(self.numbers(), 0.5), self.step()), 0.5)

    def moves(self, times: int = 1) -> Table:
        """0 if the result is that many times as long as the source, else 1."""
        between = shapes.sub(shapes.mul(self.extent, times), self.out)
        held = tables.value(between) if isinstance(between, Value) else torch.tensor([between])
        return tables.minimum(tables.absolute(held), 1)

    def within(self, positions: Table) -> Table:
        """Positions as integers, kept on the axis."""
        integers = tables.cast(positions, torch.int32)
        return tables.clamp(integers, 0, shapes.sub(self.extent, 1))


@dataclass(frozen=True)
class Taps:
    """What each place of the result reads, and with what weight (none: one tap, copied)."""

    windows: Windows
    weights: Table | None

    def of(self, x: Value, axis: int) -> Value:
        """`x` resized along an axis."""
        found = self.windows.filled(x, axis, 0)
        if self.weights is not None:
            found = cai.mul(found, tables.value(tables.along(self.weights, axis, found.type.rank)))
            found = cai.reduce_sum(found, [axis + 1])
        return cai.shrink_dims(found, [axis + 1])


Sampler: TypeAlias = Callable[[Line], Taps]


def nearest(line: Line) -> Taps:
    return _copied(line, tables.mul(line.numbers(), line.step()))


def nearest_on_planes(line: Line) -> Taps:
    """Torch's two-axis kernel copies and doubles an axis whatever the factor; its others do not."""
    copied, doubled = line.moves(), line.moves(2)
    other = tables.cast(tables.mul(copied, doubled), torch.float32)
    step = tables.mul(line.step(), other)
    for keeps, ratio in ((copied, 1.0), (doubled, 0.5)):
        same = tables.sub(1.0, tables.cast(keeps, torch.float32))
        step = tables.add(step, tables.mul(same, ratio))
    return _copied(line, tables.mul(line.numbers(), step))


def nearest_exact(line: Line) -> Taps:
    return _copied(line, tables.add(tables.maximum(line.centres(), 0.0), 0.5))


def _copied(line: Line, positions: Table) -> Taps:
    return _listed(line, [line.within(positions)], None)


def _listed(line: Line, positions: Sequence[Table], weights: Sequence[Table] | None) -> Taps:
    """Taps given as one vector for the first of each place, one for the second, ..."""
    beside = tables.side_by_side(positions)
    inside = torch.ones(1, 1, dtype=torch.bool)
    windows = Windows(line.out, len(positions), beside, inside)
    return Taps(windows, None if weights is None else tables.side_by_side(weights))


def linear(line: Line) -> Taps:
    moves = line.moves()  # an axis that keeps its size is copied, whatever the factor
    centres = _chosen(moves, tables.maximum(line.centres(), 0.0), line.numbers())
    first = line.within(centres)
    second = line.within(tables.add(first, moves))
    behind = tables.clamp(tables.sub(centres, tables.cast(first, torch.float32)), 0.0, 1.0)
    return _listed(line, [first, second], [tables.sub(1.0, behind), behind])


def _chosen(flag: Table, one: Table, zero: Table) -> Table:
    """The first table where a flag is 1, the second where it is 0."""
    return tables.where(tables.greater(flag, 0), one, zero)


def _near(x: Table, a: float) -> Table:
    """Keys' cubic within one place of its centre."""
    return tables.add(_times(x, x, tables.sub(tables.mul(x, a + 2), a + 3)), 1.0)


def _far(x: Table, a: float) -> Table:
    """Keys' cubic between one and two places from its centre."""
    inner = tables.add(tables.mul(tables.sub(x, 5.0), x), 8.0)
    return tables.mul(tables.sub(tables.mul(inner, x), 4.0), a)


def _times(*factors: Table) -> Table:
    product = factors[0]
    for factor in factors[1:]:
        product = tables.mul(product, factor)
    return product


def cubic(line: Line) -> Taps:
    centres = line.centres()
    most = tables.number(shapes.sub(line.extent, 1))
    first = tables.minimum(tables.floor(centres), most)
    t = tables.clamp(tables.sub(centres, first), 0.0, 1.0)
    back = tables.sub(1.0, t)
    a = -0.75
    weights = [_far(tables.add(t, 1.0), a), _near(t, a), _near(back, a)]
    weights.append(_far(tables.add(back, 1.0), a))
    positions = [line.within(tables.add(first, step)) for step in (-1.0, 0.0, 1.0, 2.0)]
    return _listed(line, positions, weights)


def triangle(x: Table) -> Table:
    return tables.maximum(tables.sub(1.0, tables.absolute(x)), 0.0)


def keys(x: Table) -> Table:
    x = tables.minimum(tables.absolute(x), 2.0)  # the cubic ends in 0 there
    return tables.where(tables.greater(1.0, x), _near(x, -0.5), _far(x, -0.5))


def lanczos(x: Table) -> Table:
    x = tables.minimum(tables.absolute(x), 3.0)  # the window ends in 0 there
    return tables.mul(_sinc(x), _sinc(tables.mul(x, 1.0 / 3.0)))


def _sinc(x: Table) -> Table:
    arc = tables.mul(tables.maximum(x, 1e-6), math.pi)  # at 1e-6 it is 1 in f32
    return tables.div(tables.sine(arc), arc)


def smooth(kernel: Callable[[Table], Table], reach: int) -> Sampler:
    """Antialiased: where the result is coarser than the source, the kernel is made wider."""

    def sample(line: Line) -> Taps:
        step = line.step()
        wide = tables.maximum(step, 1.0)
        support = tables.mul(wide, float(reach))
        centres = tables.mul(tables.add(line.numbers(), 0.5), step)
        start = tables.cast(tables.add(tables.sub(centres, support), 0.5), torch.int32)
        stop = tables.cast(tables.add(tables.add(centres, support), 0.5), torch.int32)
        moves, here = line.moves(), tables.count(line.out)
        first = _chosen(moves, tables.maximum(start, 0), here)
        end = _chosen(moves, tables.minimum(stop, line.extent), tables.add(here, 1))
        taps = _most_taps(line, reach)
        wanted = tables.add(tables.column(first), tables.row(tables.count(taps)))
        inside = tables.greater(tables.column(end), wanted)
        places = tables.add(tables.cast(wanted, torch.float32), 0.5)
        arms = tables.div(tables.sub(places, tables.column(centres)), wide)
        weights = tables.mul(kernel(arms), tables.cast(inside, torch.float32))
        weights = tables.div(weights, tables.total(weights))
        inner = tables.minimum(wanted, shapes.sub(line.extent, 1))
        return Taps(Windows(line.out, taps, inner, inside), weights)

    return sample


def _most_taps(line: Line, reach: int) -> Dim:
    """A number of taps that suffices everywhere."""
    if line.factor is not None and line.factor > 0 and not line.align:
        return 2 * math.ceil(reach * max(1.0 / line.factor, 1.0)) + 1
    less = 1 if line.align else 0
    out = shapes.maximum(shapes.sub(line.out, less), 1)
    wide = shapes.add(shapes.mul(shapes.sub(line.extent, less), reach), shapes.sub(out, 1))
    return shapes.add(shapes.mul(shapes.maximum(shapes.floordiv(wide, out), reach), 2), 1)
