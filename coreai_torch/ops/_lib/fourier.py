"""Discrete Fourier transforms as products with the matrices of factors (Cooley and Tukey).

A length is split into factors of about 32: each is a product with a small matrix, then one with the
twiddle factors. A length without small factors becomes a circular convolution with a chirp, of a
length that has them (Bluestein): `j k = (j² + k² - (k - j)²) / 2`.

A signal has a real part, or a real and an imaginary part, `[length, columns]`. All transforms are
forward; an inverse one exchanges the parts before and after. Tables are computed at conversion in
float64, or by the program if the length is dynamic. Such a program looks for factors of the length
and takes the convolution if they are large; the memory is linear.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes, types
from ...ir.dialect import Dim, Value
from . import windows
from .windows import Table, Term

DENSE = 256  # up to this length the transform is one product with its full matrix
_RADIX = 32  # the factors of a longer transform are near this size

Op = Callable[[Value, Value], Value]


def _value(table: Table) -> Value:
    return windows.value(windows.cast(table, torch.float32))


@dataclass(frozen=True)
class Wave:
    """Complex numbers of equal magnitude."""

    cosine: Table
    sine: Table

    @classmethod
    def of(cls, turns: Table, period: Dim) -> Wave:
        """Return `exp(-2 pi i * turns / period)`; quarter turns of a static period are exact."""
        if isinstance(turns, Value) or not isinstance(period, int):
            step = windows.div(torch.tensor(-2 * math.pi), windows.number(period))
            angle = windows.value(windows.mul(windows.cast(turns, torch.float32), step))
            return cls(cai.cos(angle), cai.sin(angle))
        angle = (turns % period).to(torch.float64) * (-2 * math.pi / period)
        is_quarter = 4 * turns % period == 0
        return cls(*(torch.where(is_quarter, p.round(), p) for p in (angle.cos(), angle.sin())))

    def scaled(self, factor: Term) -> Wave:
        if isinstance(factor, float) and factor == 1.0:
            return self
        return Wave(windows.mul(self.cosine, factor), windows.mul(self.sine, factor))

    def rows(self, count: Dim) -> Wave:
        """Return the first rows."""
        parts = (self.cosine, self.sine)
        return Wave(
            *(cai.slice_axis(p, 0, 0, count) if isinstance(p, Value) else p[:count] for p in parts)
        )

    def times(self, x: Sequence[Value], op: Op, real_only: bool = False) -> list[Value]:
        """Return the parts of the product with a signal."""
        cosine, sine = _value(self.cosine), _value(self.sine)
        real, *imaginary = x
        if not imaginary:
            return [op(cosine, real), *([] if real_only else [op(sine, real)])]
        found = [cai.sub(op(cosine, real), op(sine, imaginary[0]))]
        if not real_only:
            found.append(cai.add(op(sine, real), op(cosine, imaginary[0])))
        return found


def _turns(rows: Dim, columns: Dim) -> Table:
    return windows.mul(windows.column(windows.count(rows)), windows.row(windows.count(columns)))


def dft_matrix(rows: Dim, columns: Dim, length: Dim) -> Wave:
    """Return a part of the symmetric matrix of a transform."""
    turns = _turns(rows, columns)
    if isinstance(turns, Value):
        turns = cai.modulo(turns, shapes.number(length))
    return Wave.of(turns, length)


@dataclass(frozen=True)
class Transform:
    """What to compute of each column of a signal.

    Args:
        columns: the number of columns.
        kept: the number of rows of the result.
        real_only: whether to compute the real part alone.
        scale: a factor of the result.
    """

    columns: Dim
    kept: Dim
    real_only: bool = False
    scale: Term = 1.0


def padded(x: Value, rows: Dim) -> Value:
    """Append rows of zeros up to this number."""
    missing = shapes.sub(rows, cai.size(x, 0))
    if isinstance(missing, int) and missing == 0:
        return x
    return cai.concat(0, [x, cai.zeros(x, [missing, cai.size(x, 1)])])


def by_factors(x: Sequence[Value], factors: Sequence[Dim], wanted: Transform) -> list[Value]:
    """Transform each column of a signal whose length is the product of the factors."""
    columns, done = wanted.columns, shapes.product(factors[:-1])
    for place, factor in enumerate(factors[:-1]):
        # [factor * rest, columns] to [rest, factor * columns]
        rest = shapes.product(factors[place + 1 :])
        x = [cai.reshape(part, [factor, shapes.mul(rest, columns)]) for part in x]
        x = dft_matrix(factor, factor, factor).times(x, cai.matmul)
        x = [cai.reshape(part, [factor, rest, columns]) for part in x]
        turns = _turns(factor, rest)
        shape = [*(turns.type.shape if isinstance(turns, Value) else turns.shape), 1]
        turns = cai.expand_dims(turns, [2]) if isinstance(turns, Value) else turns.reshape(shape)
        x = Wave.of(turns, shapes.mul(factor, rest)).times(x, cai.mul)
        columns = shapes.mul(columns, factor)
        x = [cai.reshape(cai.transpose(part, [1, 0, 2]), [rest, columns]) for part in x]
    length, rows = factors[-1], _ceildiv(wanted.kept, done)
    if isinstance(length, int) and length > DENSE:
        found = convolved(x, length, replace(wanted, columns=columns, kept=rows))
    else:
        matrix = dft_matrix(rows, length, length).scaled(wanted.scale)
        found = matrix.times(x, cai.matmul, wanted.real_only)
    count = shapes.mul(rows, done)
    found = [cai.reshape(part, [count, wanted.columns]) for part in found]
    if isinstance(count, int) and count == wanted.kept:
        return found
    return [cai.slice_axis(part, 0, 0, wanted.kept) for part in found]


def _ceildiv(a: Dim, b: Dim) -> Dim:
    return shapes.floordiv(shapes.sub(shapes.add(a, b), 1), b)


def factors_of(length: int) -> list[int]:
    """Return factors of about 32; the last one is above 256 if it has no divisor up to there."""
    found = []
    while length > _RADIX:
        count = math.ceil(math.log(length) / math.log(_RADIX))
        wanted = length ** (1 / count)
        divisors = [d for d in range(2, min(length, DENSE + 1)) if length % d == 0]
        if not divisors:
            break
        found.append(min(divisors, key=lambda d: abs(math.log(d / wanted))))
        length //= found[-1]
    return [*found, length]


def _smooth(least: int) -> int:
    """Return the smallest number >= `least` whose prime factors are 2, 3 and 5."""
    found = least
    while 30 ** found.bit_length() % found:
        found += 1
    return found


def convolved(x: Sequence[Value], length: int, wanted: Transform) -> list[Value]:
    """Transform each column by a convolution with a chirp."""
    circle = _smooth(2 * length - 1)
    chirp = Wave.of(torch.arange(length).square()[:, None], 2 * length)
    kernel = torch.zeros(circle, dtype=torch.complex128)
    kernel[:length] = torch.complex(chirp.cosine, -chirp.sine)[:, 0]
    kernel[circle - length + 1 :] = kernel[1:length].flip(0)
    spectrum = torch.fft.fft(kernel)[:, None]
    return convolve(x, chirp, Wave(spectrum.real, spectrum.imag), factors_of(circle), wanted)


def convolve(
    x: Sequence[Value], chirp: Wave, spectrum: Wave, factors: Sequence[Dim], wanted: Transform
) -> list[Value]:
    """Multiply by a chirp, convolve with one whose transform is `spectrum`, multiply again."""
    circle = shapes.product(factors)
    turned = [padded(part, circle) for part in chirp.times(x, cai.mul)]
    found = by_factors(turned, factors, Transform(wanted.columns, circle))
    found = spectrum.times(found, cai.mul)[::-1]
    found = by_factors(found, factors, Transform(wanted.columns, wanted.kept))[::-1]
    scale = windows.div(wanted.scale, windows.number(circle))
    return chirp.rows(wanted.kept).scaled(scale).times(found, cai.mul, wanted.real_only)


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


def _divisors(size: Value) -> list[Dim]:
    """Return three factors of the length, as equal as possible; some may be 1."""
    first = _divisor(size, 3)
    rest = shapes.floordiv(size, first)
    second = _divisor(rest, 2)
    return [first, second, shapes.floordiv(rest, second)]


def _cube_root(length: Dim) -> Value:
    """Return the smallest number whose cube is at least `length`, or the largest factor."""
    numbers = torch.arange(1, _LARGEST)
    reaches = cai.greater(windows.value(numbers**3 + 1), windows.value(length))
    return _extreme(numbers, reaches, _LARGEST, cai.reduce_min)


def transform(x: Sequence[Value], size: Value, bound: int | None, wanted: Transform) -> list[Value]:
    """Transform each column of a signal; `bound` is the largest length that it may have."""
    divisors = _divisors(size)
    least = shapes.sub(shapes.mul(size, 2), 1)
    root = _cube_root(least)
    square = shapes.mul(root, root)
    circle = [root, root, shapes.floordiv(shapes.add(least, shapes.sub(square, 1)), square)]
    limit = shapes.number(shapes.maximum(shapes.mul(root, _GAIN), _SMOOTH))
    total = shapes.number(functools.reduce(shapes.add, divisors))
    part = types.tensor([wanted.kept, wanted.columns], x[0].type.element_type)
    return graph.branch(
        cai.greater(total, limit),
        [part] if wanted.real_only else [part, part],
        lambda: _convolved_at_run_time(x, size, bound or _UNBOUNDED, circle, wanted),
        lambda: by_factors(x, divisors, wanted),
    )


def _convolved_at_run_time(
    x: Sequence[Value], size: Value, bound: int, factors: Sequence[Dim], wanted: Transform
) -> list[Value]:
    period, circle = shapes.mul(size, 2), shapes.product(factors)

    def chirp(position: Value) -> Wave:
        return Wave.of(_square_modulo(position, windows.value(period), bound), period)

    here = chirp(cai.expand_dims(windows.value(windows.count(size)), [1]))
    number = cai.expand_dims(windows.value(windows.count(circle)), [1])
    distance = cai.minimum(number, cai.sub(windows.value(circle), number))
    inside = cai.greater(windows.value(size), distance)
    around = chirp(cai.minimum(distance, windows.value(size)))
    kernel = [cai.where(inside, p, 0.0) for p in (around.cosine, cai.neg(around.sine))]
    spectrum = Wave(*by_factors(kernel, factors, Transform(1, circle)))
    return convolve(x, here, spectrum, factors, wanted)
