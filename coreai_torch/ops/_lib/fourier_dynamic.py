"""Fourier transforms of a dynamic length, in linear memory.

The program looks for factors of the length n. If they are small, the transform is one product with
the matrix of each factor, as for a static length. Otherwise it is a circular convolution with a
chirp (Bluestein): `j k = (j² + k² - (k - j)²) / 2`, of a length of at least `2 n - 1` that has
small factors. The program computes the factors, their matrices, the twiddle factors and the chirp
from n.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes, types
from ...ir.dialect import Dim, Value
from . import windows
from .fourier import Signal

DENSE = 256  # up to this upper bound, one product with the full matrix is faster
LONGEST = 20_000_000  # its convolution is as long as the product of three largest factors
_LARGEST = 342  # factor that is looked for
_SMOOTH = 256  # factors with at most this sum are faster than a convolution of any length
_GAIN = 8  # so are factors with at most this sum, in relation to a factor of the convolution
_INT32 = 2**31
_UNBOUNDED = 40_000_000  # largest position without an upper bound: memory ends before


def _square_modulo(position: Value, period: Value, bound: int) -> Value:
    """Return `position² mod period` without a product that exceeds 32 bits.

    The second factor is split into digits, and the sum is reduced after each. Positions are below
    `bound`, and the period is at most twice that, so a digit times both takes at most 31 bits.
    """
    if bound**2 < _INT32:
        return cai.modulo(cai.mul(position, position), period)
    bits = int(math.log2(_INT32 / (3 * bound)))
    digit = cai.i32(1 << bits)
    rest, digits = position, []
    for _ in range(math.ceil(math.log2(bound) / bits) - 1):
        upper = cai.floor_divide(rest, digit)
        digits.append(cai.sub(rest, cai.mul(upper, digit)))
        rest = upper
    found = cai.modulo(cai.mul(position, rest), period)
    for lower in reversed(digits):
        shifted = cai.add(cai.mul(found, digit), cai.mul(position, lower))
        found = cai.modulo(shifted, period)
    return found


def _positions(length: Dim, rank: int) -> Value:
    """Return 0, 1, ..., length - 1 as the first axis of a value of this rank."""
    return cai.expand_dims(windows.value(windows.count(length)), list(range(1, rank)))


@dataclass(frozen=True)
class _Wave:
    """Complex numbers on the unit circle."""

    cosine: Value
    sine: Value

    @classmethod
    def of(cls, turns: Value, period: Dim) -> _Wave:
        """Return `exp(2 pi i * turns / period)`."""
        full = cai.constant(2 * math.pi, torch.float32)
        step = cai.div(full, windows.value(windows.number(period)))
        angle = cai.mul(cai.cast(turns, torch.float32), step)
        return cls(cai.cos(angle), cai.sin(angle))

    def part(self, axis: int, size: Dim) -> _Wave:
        """Return the first elements along an axis."""
        return _Wave(*(cai.slice_axis(p, axis, 0, size) for p in (self.cosine, self.sine)))

    def scaled(self, factor: windows.Term) -> _Wave:
        if isinstance(factor, float) and factor == 1.0:
            return self
        value = windows.value(factor, torch.float32)
        return _Wave(cai.mul(self.cosine, value), cai.mul(self.sine, value))

    def real_product(self, x: Signal, sign: int, op: Callable[[Value, Value], Value]) -> Value:
        """Return the real part of the product."""
        if len(x.blocks) == 1:
            return op(self.cosine, x.blocks[0])
        combine = cai.sub if sign > 0 else cai.add
        return combine(op(self.cosine, x.blocks[0]), op(self.sine, x.blocks[1]))

    def product(self, x: Signal, sign: int, op: Callable[[Value, Value], Value]) -> Signal:
        """Return the product of `cosine + i * sign * sine` with `[real]` or `[real, imaginary]`."""
        imaginary = op(self.sine, x.blocks[0])
        if len(x.blocks) == 1:
            imaginary = imaginary if sign > 0 else cai.neg(imaginary)
        else:
            other = op(self.cosine, x.blocks[1])
            imaginary = cai.add(other, imaginary) if sign > 0 else cai.sub(other, imaginary)
        return Signal([self.real_product(x, sign, op), imaginary])


@dataclass(frozen=True)
class Transform:
    """What to compute of each column of a signal.

    Args:
        columns: the number of columns.
        sign: the sign of the exponent.
        kept: the number of rows of the result, if they are not all.
        is_real: whether to compute the real part alone.
        scale: a factor of the result.
    """

    columns: Dim
    sign: int
    kept: Dim | None = None
    is_real: bool = False
    scale: windows.Term = 1.0

    def product(self, wave: _Wave, x: Signal, op: Callable[[Value, Value], Value]) -> Signal:
        """Return the wanted parts of a product."""
        if self.is_real:
            return Signal([wave.real_product(x, self.sign, op)])
        return wave.product(x, self.sign, op)


def _ceildiv(a: Dim, b: Dim) -> Dim:
    return shapes.floordiv(shapes.sub(shapes.add(a, b), 1), b)


@dataclass(frozen=True)
class _Stage:
    """One factor of a length, and the number of rows of the factors behind it."""

    factor: Dim
    rest: Dim

    @functools.cached_property
    def matrix(self) -> _Wave:
        """The matrix of a transform of `factor` elements."""
        place = _positions(self.factor, 2)
        turns = cai.mul(place, cai.transpose(place, [1, 0]))
        return _Wave.of(cai.modulo(turns, windows.value(self.factor)), self.factor)

    @functools.cached_property
    def twiddle(self) -> _Wave:
        """The factors `exp(2 pi i j k / (factor * rest))`."""
        turns = cai.mul(_positions(self.factor, 3), _positions(self.rest, 2))
        return _Wave.of(turns, shapes.mul(self.factor, self.rest))

    def split(self, x: Signal, given: Dim | None, columns: Dim, sign: int) -> Signal:
        """Transform the factor: `[factor * rest, columns]` to `[rest, factor * columns]`."""
        matrix, rows = self.matrix, self.factor
        if given is not None:
            rows = _ceildiv(given, self.rest)
            matrix = matrix.part(1, rows)
            missing = shapes.sub(shapes.mul(rows, self.rest), given)
            zeros = cai.zeros(x.blocks[0], [missing, columns])
            x = Signal([cai.concat(0, [b, zeros]) for b in x.blocks])
        flat = x.view([rows, shapes.mul(self.rest, columns)])
        found = matrix.product(flat, sign, cai.matmul).view([self.factor, self.rest, columns])
        turned = self.twiddle.product(found, sign, cai.mul)
        swapped = Signal([cai.transpose(b, [1, 0, 2]) for b in turned.blocks])
        return swapped.view([self.rest, shapes.mul(columns, self.factor)])


class _Factors:
    """A length as a product of factors."""

    def __init__(self, *factors: Dim) -> None:
        rests = [shapes.product(factors[place + 1 :]) for place in range(len(factors))]
        self.length = shapes.product(factors)
        self._stages = [_Stage(f, r) for f, r in zip(factors, rests, strict=True)]

    def transform(self, x: Signal, wanted: Transform, given: Dim | None = None) -> Signal:
        """Transform each column; `given` is the number of rows, if those behind them are 0."""
        *first, last = self._stages
        inner = wanted.columns
        for stage in first:
            x = stage.split(x, given, inner, wanted.sign)
            inner, given = shapes.mul(inner, stage.factor), None
        done = shapes.product([stage.factor for stage in first])
        matrix, rows = last.matrix.scaled(wanted.scale), last.factor
        if wanted.kept is not None:
            rows = _ceildiv(wanted.kept, done)
            matrix = matrix.part(0, rows)
        found = wanted.product(matrix, x, cai.matmul)
        found = found.view([shapes.mul(rows, done), wanted.columns])
        return found if wanted.kept is None else found.take(wanted.kept)


def _extreme(
    numbers: torch.Tensor, holds: Value, otherwise: int, op: Callable[[Value, list[int]], Value]
) -> Value:
    """Return the largest or smallest number for which a condition holds."""
    table = windows.value(numbers)
    return shapes.scalar(op(cai.where(holds, table, cai.i32(otherwise)), [0]))


def _divisor(length: Dim, power: int) -> Value:
    """Return the largest useful divisor whose power is at most `length`."""
    numbers = torch.arange(1, _LARGEST + 1)
    size = windows.value(length)
    divides = cai.equal(cai.modulo(size, windows.value(numbers)), cai.i32(0))
    fits = cai.greater(size, windows.value(numbers**power - 1))
    return _extreme(numbers, cai.logical_and(divides, fits), 1, cai.reduce_max)


def _cube_root(length: Dim) -> Value:
    """Return the smallest number whose cube is at least `length`, or the largest factor."""
    numbers = torch.arange(1, _LARGEST)
    reaches = cai.greater(windows.value(numbers**3 + 1), windows.value(length))
    return _extreme(numbers, reaches, _LARGEST, cai.reduce_min)


@dataclass(frozen=True)
class Length:
    """A dynamic length with the largest value that it may have."""

    size: Value
    bound: int | None

    def transform(self, x: Signal, wanted: Transform) -> Signal:
        """Transform each column of a `[length, columns]` signal: real, or real and imaginary."""
        divisors = self._divisors()
        least = shapes.sub(shapes.mul(self.size, 2), 1)
        root = _cube_root(least)
        circle = [root, root, _ceildiv(least, shapes.mul(root, root))]
        limit = shapes.number(shapes.maximum(shapes.mul(root, _GAIN), _SMOOTH))
        total = shapes.number(functools.reduce(shapes.add, divisors))
        rows = self.size if wanted.kept is None else wanted.kept
        part = types.tensor([rows, wanted.columns], x.blocks[0].type.element_type)
        parts = graph.branch(
            cai.greater(total, limit),
            [part] if wanted.is_real else [part, part],
            lambda: self._convolve(x, _Factors(*circle), wanted).blocks,
            lambda: _Factors(*divisors).transform(x, wanted).blocks,
        )
        return Signal(parts)

    def _divisors(self) -> list[Dim]:
        """Return three factors of the length, as equal as possible; some may be 1."""
        first = _divisor(self.size, 3)
        rest = shapes.floordiv(self.size, first)
        second = _divisor(rest, 2)
        return [first, second, shapes.floordiv(rest, second)]

    def _chirp(self, position: Value) -> _Wave:
        """Return `exp(pi i * position² / n)`."""
        period = shapes.mul(self.size, 2)
        turns = _square_modulo(position, windows.value(period), self.bound or _UNBOUNDED)
        return _Wave.of(turns, period)

    def _response(self, circle: _Factors, sign: int) -> _Wave:
        """Return the transform of the chirp around a circle."""
        number, size = _positions(circle.length, 2), windows.value(self.size)
        distance = cai.minimum(number, cai.sub(windows.value(circle.length), number))
        inside = cai.greater(size, distance)
        chirp = self._chirp(cai.minimum(distance, size))
        cosine, sine = (cai.where(inside, p, cai.like(p, 0)) for p in (chirp.cosine, chirp.sine))
        signal = Signal([cosine, sine if sign > 0 else cai.neg(sine)])
        return _Wave(*circle.transform(signal, Transform(1, -1)).blocks)

    def _convolve(self, x: Signal, circle: _Factors, wanted: Transform) -> Signal:
        """Transform each column by a convolution around a circle of at least `2 n - 1` elements."""
        columns, sign = wanted.columns, wanted.sign
        kept = self.size if wanted.kept is None else wanted.kept
        chirp = self._chirp(_positions(self.size, 2))
        turned = chirp.product(x, sign, cai.mul)
        spectrum = circle.transform(turned, Transform(columns, -1), self.size)
        changed = self._response(circle, -sign).product(spectrum, 1, cai.mul)
        found = circle.transform(changed, Transform(columns, 1, kept))
        scale = windows.div(wanted.scale, windows.number(circle.length))
        return wanted.product(chirp.part(0, kept).scaled(scale), found, cai.mul)


def hermitian(x: Signal, length: Value) -> Signal:
    """Return all rows of a spectrum, given its first half."""
    count = windows.value(windows.count(length))
    size = windows.value(length)
    mirrored = cai.greater(cai.mul(count, cai.i32(2)), size)
    place = cai.expand_dims(cai.where(mirrored, cai.sub(size, count), count), [1])
    real, imaginary = (cai.gather_nd(b, place) for b in x.blocks)
    flag = cai.expand_dims(cai.cast(mirrored, torch.float32), [1])
    sign = cai.sub(cai.like(flag, 1), cai.mul(flag, cai.like(flag, 2)))
    return Signal([real, cai.mul(imaginary, sign)])
