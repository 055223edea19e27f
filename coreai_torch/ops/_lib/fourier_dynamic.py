"""Fourier transforms of a dynamic length with a known upper bound, in linear memory.

A transform of n elements is a circular convolution with a chirp (Bluestein):
`j k = (j² + k² - (k - j)²) / 2`. The convolution has a static length, at least twice the upper
bound, so that the factors of `fourier.py` apply to it. The program computes the chirp from n.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from . import windows
from .fourier import Signal, smooth, transform

DENSE = 1_024  # up to this upper bound, one product with the full matrix is faster
LONGEST = 500_000  # the squares of larger positions, modulo 2 n, need more than 32 bits
_SPLIT = 256


def upper_bound(size: Any) -> int | None:
    """Return the largest value of a size, or None if it has none."""
    if isinstance(size, int):
        return size
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    is_bounded = upper.is_finite and upper < torch.iinfo(torch.int32).max
    return int(upper) if is_bounded else None


def _chirp(position: Value, length: Value, sign: int) -> tuple[Value, Value]:
    """Return cosine and sine of `sign * pi * position² / length`.

    The square is reduced modulo 2 n in two parts, so that no product exceeds 32 bits.
    """
    period = cai.mul(length, cai.i32(2))
    high = cai.floor_divide(position, cai.i32(_SPLIT))
    low = cai.sub(position, cai.mul(high, cai.i32(_SPLIT)))
    upper = cai.mul(cai.modulo(cai.mul(position, high), period), cai.i32(_SPLIT))
    square = cai.modulo(cai.add(upper, cai.mul(position, low)), period)
    step = cai.div(cai.constant(sign * math.pi, torch.float32), cai.cast(length, torch.float32))
    angle = cai.mul(cai.cast(square, torch.float32), step)
    return cai.cos(angle), cai.sin(angle)


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


def _response(padded: int, length: Value, sign: int) -> Signal:
    """Return the transform of the conjugate chirp, which the signal's spectrum is multiplied by."""
    number = torch.arange(padded)
    distance = torch.minimum(number, padded - number).to(torch.int32)[:, None]
    position = cai.tensor_constant(distance, "chirp")
    inside = cai.greater(length, position)
    parts = [cai.where(inside, p, cai.like(p, 0)) for p in _chirp(position, length, -sign)]
    return transform(Signal(parts), padded, 1, -1)


def transform_up_to(
    x: Signal, length: Value, bound: int, columns: Dim, sign: int, scale: windows.Term
) -> Signal:
    """Return `[real, imaginary]` of each transformed column of a `[length, columns]` signal.

    Args:
        x: the real part, or the real and the imaginary part.
        length: the number of rows, at run time.
        bound: the largest value of `length`.
        columns: the number of columns.
        sign: the sign of the exponent.
        scale: a factor of the result.
    """
    padded = smooth(2 * bound - 1)
    count = windows.value(windows.count(length))
    size = windows.value(length)
    chirp = _chirp(cai.expand_dims(count, [1]), size, sign)
    rest = shapes.sub(padded, length)
    zeros = cai.zeros(x.blocks[0], [rest, columns])
    long = [
        cai.reshape(cai.concat(0, [b, zeros]), [padded, columns]) for b in _times(x, chirp).blocks
    ]
    real, imaginary = _response(padded, size, sign).blocks
    spectrum = _times(transform(Signal(long), padded, columns, -1), (real, imaginary))
    found = transform(spectrum, padded, columns, 1, 1 / padded)
    rows = Signal([cai.slice_axis(b, 0, 0, length) for b in found.blocks])
    factor = windows.value(scale, torch.float32)
    return Signal([cai.mul(b, factor) for b in _times(rows, chirp).blocks])


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
