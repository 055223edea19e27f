"""Discrete Fourier transforms as products with the matrices of factors (Cooley and Tukey).

A length is split into factors of about 32: each is a product with a small matrix, then one with the
twiddle factors. A length without small factors becomes a circular convolution with a chirp, of a
length that has them (Bluestein): `j k = (j² + k² - (k - j)²) / 2`.

A signal has a real part, or a real and an imaginary part, `[length, columns]`. All transforms are
forward; an inverse one exchanges the parts before and after. Tables are computed at conversion in
float64, or by the program if the length is dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ...ir import dialect as cai
from ...ir import shapes
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
