"""Fourier transforms of a dynamic length, in linear memory.

The program looks for factors of the length n. If they are small, the transform is one product with
the matrix of each factor, as for a static length. Otherwise it is a circular convolution with a
chirp, of a length of at least `2 n - 1` that has small factors. The program computes the factors,
their matrices, the twiddle factors and the chirp from n.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes, types
from ...ir.dialect import Dim, Value
from . import windows
from .fourier import Transform, Wave, by_factors, convolve

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
        lambda: _convolved(x, size, bound or _UNBOUNDED, circle, wanted),
        lambda: by_factors(x, divisors, wanted),
    )


def _convolved(
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
