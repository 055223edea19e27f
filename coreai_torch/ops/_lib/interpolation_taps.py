"""Taps and weights of torch's interpolation modes along one axis."""

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
from .constant_positions import LARGEST_MATRIX, multiply, pick
from .windows import Table, Windows

_MOST_PARTS = 8


@dataclass(frozen=True)
class Line:
    """One axis to resize: its size, the output size, and the scale factor if one was given."""

    extent: Dim
    out: Dim
    factor: float | None
    align: bool

    def step(self) -> Table:
        """Return the source distance between neighbouring output positions."""
        if self.align:
            spaces = shapes.sub(self.out, 1)
            spans = shapes.mul(shapes.sub(self.extent, 1), shapes.minimum(spaces, 1))
            return tables.div(tables.number(spans), tables.number(shapes.maximum(spaces, 1)))
        if self.factor is not None and self.factor > 0:
            return tables.number(1.0 / self.factor)
        return tables.div(tables.number(self.extent), tables.number(self.out))

    def numbers(self) -> Table:
        """Return 0.0, 1.0, 2.0, ... for the output positions."""
        return tables.cast(tables.count(self.out), torch.float32)

    def centres(self) -> Table:
        """Return the source coordinate of each output position; source element i is at i."""
        if self.align:
            return tables.mul(self.numbers(), self.step())
        return _half_less(tables.add(self.numbers(), 0.5), self.step())

    @property
    def is_known(self) -> bool:
        return shapes.is_static([self.extent, self.out])

    def scale_and_offset(self) -> tuple[float, float]:
        """Return the scale and offset of `cai.interpolate` for the known sizes of the line."""
        extent, out = int(self.extent), int(self.out)
        if extent == out or (self.align and out == 1):
            return 1.0, 0.0
        if self.align:
            scale = (out - 1) / max(extent - 1, 1)
            return scale, 0.5 - 0.5 * scale
        return self.factor if self.factor is not None and self.factor > 0 else out / extent, 0.0

    def drift(self) -> float:
        """Return how far the coordinates of `cai.interpolate` are from torch's, in elements.

        The runtime (1.0.0b3) computes `(i + 0.5 - offset) / scale - 0.5` in float32.
        """
        scale, offset = (torch.tensor(n) for n in self.scale_and_offset())
        found = (self.numbers() + 0.5 - offset) / scale - 0.5
        wanted = self.numbers() if self.extent == self.out else self.centres()
        ends = 0.0, float(int(self.extent) - 1)
        return float((found.clamp(*ends) - torch.as_tensor(wanted).clamp(*ends)).abs().max())

    def moves(self, times: int = 1) -> Table:
        """Return 0 if the output size is `times` times the input size, else 1."""
        difference = shapes.sub(shapes.mul(self.extent, times), self.out)
        table = (
            tables.value(difference)
            if isinstance(difference, Value)
            else torch.tensor([difference])
        )
        return tables.minimum(tables.absolute(table), 1)

    def within(self, positions: Table) -> Table:
        """Return positions as integers, clamped to the axis."""
        integers = tables.cast(positions, torch.int32)
        return tables.clamp(integers, 0, shapes.sub(self.extent, 1))


def _half_less(centres: Table, step: Table) -> Table:
    """Return `centres * step - 0.5`, rounded once.

    Torch's kernels are compiled with fused multiply-add. Rounded twice, nearest-exact from 24 to
    564 elements copies another element at one place, and the weights for 10,000 to 22,051 are wrong
    by 1e-4. At run time, the product with the first bits of the step is exact instead.
    """
    if isinstance(centres, torch.Tensor) and isinstance(step, torch.Tensor):
        return (centres.double() * step.double() - 0.5).float()
    coarse = tables.mul(tables.floor(tables.mul(step, 1024.0)), 1.0 / 1024.0)
    rest = tables.sub(step, coarse)
    return tables.add(tables.sub(tables.mul(centres, coarse), 0.5), tables.mul(centres, rest))


@dataclass(frozen=True)
class Taps:
    """The taps that each output position reads, and their weights (None: one tap, copied)."""

    windows: Windows
    weights: Table | None

    def of(self, x: Value, axis: int, *, exact: bool) -> Value:
        """Return `x` resized along `axis`.

        Without `exact`, an infinity or NaN spreads to all elements of its line that a product with
        a constant matrix computes.
        """
        picked = self.picked(x, axis, exact=exact)
        if picked is not None:
            return picked
        matrix = None if exact else self._matrix(x.type.shape[axis])
        if matrix is not None:
            return _multiplied(x, axis, matrix)
        if self.weights is None:
            positions = tables.reshape(self.windows.positions, [self.windows.windows])
            return tables.take(x, positions, axis)
        return self._weighed(x, axis, self.weights)

    def picked(self, x: Value, axis: int, *, exact: bool) -> Value | None:
        """Return `x` resized along `axis` if few slices and broadcasts can do it."""
        if exact and self.weights is not None:  # torch adds 0 * infinity
            return None
        copied = self._copied(x.type.shape[axis])
        return None if copied is None else pick(x, axis, copied.tolist(), _MOST_PARTS)

    def _copied(self, extent: int) -> torch.Tensor | None:
        """Return the position that each element is copied from, if they are known."""
        positions, weights = self.windows.positions, self.weights
        if not isinstance(positions, torch.Tensor):
            return None
        if weights is None or extent == 1:
            return positions[:, 0]
        if not isinstance(weights, torch.Tensor) or not bool((weights == 1).any(1).all()):
            return None
        return positions.gather(1, (weights == 1).int().argmax(1, keepdim=True))[:, 0]

    def _matrix(self, extent: int) -> torch.Tensor | None:
        """Return the weight of each element of an axis for each result, if all are known."""
        positions, inside = self.windows.positions, self.windows.inside
        weights = torch.ones(1, 1) if self.weights is None else self.weights
        if not isinstance(positions, torch.Tensor) or extent * len(positions) > LARGEST_MATRIX:
            return None
        if not isinstance(weights, torch.Tensor) or not isinstance(inside, torch.Tensor):
            return None
        shares = (weights * inside).double().expand(positions.shape)
        matrix = torch.zeros(len(positions), extent, dtype=torch.float64)
        return matrix.scatter_add(1, positions.long(), shares).float()

    def _weighed(self, x: Value, axis: int, weights: Table) -> Value:
        """Move the axis to the front, weigh the rows there, and move the results back."""
        others = [a for a in range(x.type.rank) if a != axis]
        rest = [cai.size(x, a) for a in others]
        windows = self.windows
        flat = [cai.size(x, axis), shapes.product(rest)]
        rows = cai.reshape(cai.transpose(x, [axis, *others]), flat)
        taken = windows.filled(rows, 0, 0)
        shares = tables.cast(tables.along(weights, 0, 3), cai.dtype(x))
        weighed = cai.mul(taken, tables.value(shares))
        total = cai.reshape(cai.reduce_sum(weighed, [1]), [windows.windows, *rest])
        return cai.transpose(total, [[axis, *others].index(a) for a in range(x.type.rank)])


def _multiplied(x: Value, axis: int, matrix: torch.Tensor) -> Value:
    if cai.is_float(x):
        return multiply(x, axis, matrix)
    halves = cai.cast(x, torch.float16)  # which has all bytes
    return cai.cast(multiply(halves, axis, matrix), cai.dtype(x))


Sampler: TypeAlias = Callable[[Line], Taps]


def nearest(line: Line) -> Taps:
    return _copy(line, tables.mul(line.numbers(), line.step()))


def nearest_on_planes(line: Line) -> Taps:
    """Sample like torch's two-axis nearest kernel.

    If the output is as long or twice as long as the input, it ignores a given scale factor; torch's
    kernels for one and three axes use it.
    """
    copied, doubled = line.moves(), line.moves(2)
    other = tables.cast(tables.mul(copied, doubled), torch.float32)
    step = tables.mul(line.step(), other)
    for keeps, ratio in ((copied, 1.0), (doubled, 0.5)):
        same = tables.sub(1.0, tables.cast(keeps, torch.float32))
        step = tables.add(step, tables.mul(same, ratio))
    return _copy(line, tables.mul(line.numbers(), step))


def nearest_exact(line: Line) -> Taps:
    return _copy(line, tables.add(tables.maximum(line.centres(), 0.0), 0.5))


def _copy(line: Line, positions: Table) -> Taps:
    return _taps(line, [line.within(positions)], None)


def _taps(line: Line, positions: Sequence[Table], weights: Sequence[Table] | None) -> Taps:
    """Build taps from one vector per tap."""
    position_table = tables.stack_columns(positions)
    inside = torch.ones(1, 1, dtype=torch.bool)
    windows = Windows(line.out, len(positions), position_table, inside)
    return Taps(windows, None if weights is None else tables.stack_columns(weights))


def linear(line: Line) -> Taps:
    moves = line.moves()  # torch copies an axis that keeps its size, whatever the scale factor
    centres = _select(moves, tables.maximum(line.centres(), 0.0), line.numbers())
    first = line.within(centres)
    second = line.within(tables.add(first, moves))
    fraction = tables.clamp(tables.sub(centres, tables.cast(first, torch.float32)), 0.0, 1.0)
    return _taps(line, [first, second], [tables.sub(1.0, fraction), fraction])


def _select(flag: Table, one: Table, zero: Table) -> Table:
    """Return `one` where `flag` is 1, and `zero` where it is 0."""
    return tables.where(tables.greater(flag, 0), one, zero)


def _keys_inner(x: Table, a: float) -> Table:
    """Return Keys' cubic kernel for 0 <= x <= 1."""
    return tables.add(_product(x, x, tables.sub(tables.mul(x, a + 2), a + 3)), 1.0)


def _keys_outer(x: Table, a: float) -> Table:
    """Return Keys' cubic kernel for 1 <= x <= 2."""
    inner = tables.add(tables.mul(tables.sub(x, 5.0), x), 8.0)
    return tables.mul(tables.sub(tables.mul(inner, x), 4.0), a)


def _product(*factors: Table) -> Table:
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
    weights = [_keys_outer(tables.add(t, 1.0), a), _keys_inner(t, a), _keys_inner(back, a)]
    weights.append(_keys_outer(tables.add(back, 1.0), a))
    positions = [line.within(tables.add(first, step)) for step in (-1.0, 0.0, 1.0, 2.0)]
    return _taps(line, positions, weights)


def triangle(x: Table) -> Table:
    return tables.maximum(tables.sub(1.0, tables.absolute(x)), 0.0)


def keys(x: Table) -> Table:
    x = tables.minimum(tables.absolute(x), 2.0)  # the kernel is 0 from there on
    return tables.where(tables.greater(1.0, x), _keys_inner(x, -0.5), _keys_outer(x, -0.5))


def lanczos(x: Table) -> Table:
    x = tables.minimum(tables.absolute(x), 3.0)  # the kernel is 0 from there on
    return tables.mul(_sinc(x), _sinc(tables.mul(x, 1.0 / 3.0)))


def _sinc(x: Table) -> Table:
    arc = tables.mul(tables.maximum(x, 1e-6), math.pi)  # sinc(1e-6) is 1 in float32
    return tables.div(tables.sine(arc), arc)


def smooth(kernel: Callable[[Table], Table], reach: int) -> Sampler:
    """Return an antialiased sampler: when downsampling, the kernel widens by the step."""

    def sample(line: Line) -> Taps:
        step = line.step()
        widened = tables.maximum(step, 1.0)
        support = tables.mul(widened, float(reach))
        centres = tables.mul(tables.add(line.numbers(), 0.5), step)
        start = tables.cast(tables.add(tables.sub(centres, support), 0.5), torch.int32)
        stop = tables.cast(tables.add(tables.add(centres, support), 0.5), torch.int32)
        moves, here = line.moves(), tables.count(line.out)
        first = _select(moves, tables.maximum(start, 0), here)
        end = _select(moves, tables.minimum(stop, line.extent), tables.add(here, 1))
        taps = _most_taps(line, reach)
        wanted = tables.add(tables.column(first), tables.row(tables.count(taps)))
        inside = tables.greater(tables.column(end), wanted)
        tap_centres = tables.add(tables.cast(wanted, torch.float32), 0.5)
        offsets = tables.div(tables.sub(tap_centres, tables.column(centres)), widened)
        weights = tables.mul(kernel(offsets), tables.cast(inside, torch.float32))
        weights = tables.div(weights, tables.total(weights))
        inner = tables.minimum(wanted, shapes.sub(line.extent, 1))
        return Taps(Windows(line.out, taps, inner, inside), weights)

    return sample


def _most_taps(line: Line, reach: int) -> Dim:
    """Return an upper bound of the number of taps."""
    if line.factor is not None and line.factor > 0 and not line.align:
        return 2 * math.ceil(reach * max(1.0 / line.factor, 1.0)) + 1
    trimmed = 1 if line.align else 0
    out = shapes.maximum(shapes.sub(line.out, trimmed), 1)
    widened = shapes.add(shapes.mul(shapes.sub(line.extent, trimmed), reach), shapes.sub(out, 1))
    return shapes.add(shapes.mul(shapes.maximum(shapes.floordiv(widened, out), reach), 2), 1)
