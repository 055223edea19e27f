"""Fourier transforms of a dynamic length, in linear memory.

A transform of n elements is a circular convolution with a chirp (Bluestein):
`j k = (j² + k² - (k - j)²) / 2`. The length of the convolution is a static power of 32 times a
dynamic factor m. The program computes m, the chirp, the twiddle factors and the matrix of the
factor m from n; the matrix of a factor 32 is a constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from . import windows
from .fourier import Signal, unit_circle

DENSE = 1_024  # up to this upper bound, one product with the full matrix is faster
LONGEST = 20_000_000  # without a bound, the matrix of the last factor then takes 12 GB
_DIGIT = 16  # a digit of a position times 3 n needs at most 31 bits up to 44,000,000
_DIGITS = 6  # of the largest position
_RADIX = 32  # a static factor of a dynamic length


def _square_modulo(position: Value, period: Value) -> Value:
    """Return `position² mod period` without a product that exceeds 32 bits.

    The second factor is split into digits, and the sum is reduced after each.
    """
    rest, digits = position, []
    for _ in range(_DIGITS - 1):
        upper = cai.floor_divide(rest, cai.i32(_DIGIT))
        digits.append(cai.sub(rest, cai.mul(upper, cai.i32(_DIGIT))))
        rest = upper
    found = cai.modulo(cai.mul(position, rest), period)
    for digit in reversed(digits):
        shifted = cai.mul(found, cai.i32(_DIGIT))
        found = cai.modulo(cai.add(shifted, cai.mul(position, digit)), period)
    return found


def _wave(turns: Value, period: Value, sign: int) -> tuple[Value, Value]:
    """Return cosine and sine of `sign * 2 pi * turns / period`."""
    full = cai.constant(sign * 2 * math.pi, torch.float32)
    step = cai.div(full, cai.cast(period, torch.float32))
    angle = cai.mul(cai.cast(turns, torch.float32), step)
    return cai.cos(angle), cai.sin(angle)


def _chirp(position: Value, length: Value, sign: int) -> tuple[Value, Value]:
    """Return cosine and sine of `sign * pi * position² / length`."""
    period = cai.mul(length, cai.i32(2))
    return _wave(_square_modulo(position, period), period, sign)


def _constant(table: torch.Tensor) -> Value:
    return cai.tensor_constant(table.to(torch.float32).contiguous(), "fourier")


def _times(a: Signal, b: tuple[Value, Value]) -> Signal:
    """Return the product of `[real]` or `[real, imaginary]` with a complex value."""
    real = a.blocks[0]
    if len(a.blocks) == 1:
        return Signal([cai.mul(real, b[0]), cai.mul(real, b[1])])
    imaginary = a.blocks[1]
    return Signal(
        [
            cai.sub(cai.mul(real, b[0]), cai.mul(imaginary, b[1])),
            cai.add(cai.mul(real, b[1]), cai.mul(imaginary, b[0])),
        ]
    )


def _split(x: Signal, rest: Dim, columns: Dim, sign: int) -> Signal:
    """Transform a static factor: `[32 * rest, columns]` to `[rest, 32 * columns]`."""
    number = torch.arange(_RADIX)
    matrix = unit_circle(number[:, None] * number, _RADIX, sign)
    flat = [cai.reshape(b, [_RADIX, shapes.mul(rest, columns)]) for b in x.blocks]
    found = _product((_constant(matrix.real), _constant(matrix.imag)), Signal(flat)).view(
        [_RADIX, rest, columns]
    )
    turns = cai.mul(windows.value(number[:, None, None]), _positions(rest, 2))
    period = windows.value(shapes.mul(rest, _RADIX))
    turned = _times(found, _wave(turns, period, sign))
    rows = [cai.transpose(b, [1, 0, 2]) for b in turned.blocks]
    return Signal(rows).view([rest, shapes.mul(columns, _RADIX)])


def _positions(length: Dim, rank: int) -> Value:
    """Return 0, 1, ..., length - 1 as the first axis of a value of this rank."""
    return cai.expand_dims(windows.value(windows.count(length)), list(range(1, rank)))


def _product(matrix: tuple[Value, Value], x: Signal) -> Signal:
    """Return the product of a complex matrix with a complex signal."""
    (real, imaginary), (a, b) = matrix, x.blocks
    return Signal(
        [
            cai.sub(cai.matmul(real, a), cai.matmul(imaginary, b)),
            cai.add(cai.matmul(imaginary, a), cai.matmul(real, b)),
        ]
    )


@dataclass(frozen=True)
class _Circle:
    """The length of a convolution: `32 ** splits * factor`, at least `2 n - 1`."""

    splits: int
    factor: Value

    @classmethod
    def of(cls, length: Value, bound: int | None) -> _Circle:
        splits = 2 if bound is None or bound <= _RADIX**3 else 3
        block = _RADIX**splits
        factor = shapes.floordiv(shapes.add(shapes.mul(length, 2), block - 2), block)
        assert isinstance(factor, Value)
        return cls(splits, factor)

    @property
    def length(self) -> Value:
        found = shapes.mul(self.factor, _RADIX**self.splits)
        assert isinstance(found, Value)
        return found

    def distances(self) -> Value:
        """Return the distance of each row from the first one, around the circle, as a column."""
        number = _positions(self.length, 2)
        return cai.minimum(number, cai.sub(windows.value(self.length), number))

    def transform(self, x: Signal, columns: Dim, sign: int) -> Signal:
        """Return `[real, imaginary]` of each transformed column."""
        inner = columns
        for split in reversed(range(self.splits)):
            rest = shapes.mul(self.factor, _RADIX**split)
            x = _split(x, rest, inner, sign)
            inner = shapes.mul(inner, _RADIX)
        rows = _positions(self.factor, 2)
        size = windows.value(self.factor)
        turns = cai.modulo(cai.mul(rows, cai.transpose(rows, [1, 0])), size)
        return _product(_wave(turns, size, sign), x).view([self.length, columns])


def _response(circle: _Circle, length: Value, sign: int) -> Signal:
    """Return the transform of the conjugate chirp, which the signal's spectrum is multiplied by."""
    position = circle.distances()
    inside = cai.greater(length, position)
    parts = [cai.where(inside, p, cai.like(p, 0)) for p in _chirp(position, length, -sign)]
    return circle.transform(Signal(parts), 1, -1)


def transform_dynamic(
    x: Signal, length: Value, bound: int | None, columns: Dim, sign: int, scale: windows.Term
) -> Signal:
    """Return `[real, imaginary]` of each transformed column of a `[length, columns]` signal.

    Args:
        x: the real part, or the real and the imaginary part.
        length: the number of rows, at run time.
        bound: the largest value of `length`, or None.
        columns: the number of columns.
        sign: the sign of the exponent.
        scale: a factor of the result.
    """
    circle = _Circle.of(length, bound)
    size = windows.value(length)
    chirp = _chirp(_positions(length, 2), size, sign)
    zeros = cai.zeros(x.blocks[0], [shapes.sub(circle.length, length), columns])
    rows = [cai.concat(0, [b, zeros]) for b in _times(x, chirp).blocks]
    long = Signal(rows).view([circle.length, columns])
    real, imaginary = _response(circle, size, sign).blocks
    spectrum = _times(circle.transform(long, columns, -1), (real, imaginary))
    found = circle.transform(spectrum, columns, 1)
    kept = Signal([cai.slice_axis(b, 0, 0, length) for b in found.blocks])
    factor = windows.value(windows.div(scale, windows.number(circle.length)), torch.float32)
    return Signal([cai.mul(b, factor) for b in _times(kept, chirp).blocks])


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
