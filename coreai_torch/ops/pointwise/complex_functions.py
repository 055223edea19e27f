"""Functions of complex numbers that the dialect has for real ones only.

The inverse functions are Kahan's ("Branch cuts for complex elementary functions"): made of real
functions of the roots of 1 - z and 1 + z, they keep their accuracy near the branch points.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from ...ir import dialect as cai
from ...ir.dialect import Value
from .._lib import expm1_log1p
from .abs_atan2 import direction, distance
from .sign import with_sign_of

Pair: TypeAlias = tuple[Value, Value]  # real and imaginary part


def parts(z: Value) -> Pair:
    """Real and imaginary part of a complex value."""
    return cai.real_part(z), cai.imaginary_part(z)


def _sqrt(z: Pair) -> Pair:
    """The root in the right half-plane, without subtracting what is nearly equal."""
    real, imaginary = z
    zero, half = cai.like(real, 0), cai.like(real, 0.5)
    long = cai.sqrt(cai.mul(half, cai.add(distance(real, imaginary), cai.abs_(real))))
    safe = cai.where(cai.equal(long, zero), cai.like(real, 1), long)
    short = cai.div(cai.mul(half, imaginary), safe)
    right = cai.logical_not(cai.less(real, zero))
    signed = cai.where(cai.less(imaginary, zero), cai.neg(long), long)
    return cai.where(right, long, cai.abs_(short)), cai.where(right, short, signed)


def _times_i(z: Pair) -> Pair:
    return cai.neg(z[1]), z[0]


def _over_i(z: Pair) -> Pair:
    return z[1], cai.neg(z[0])


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """The roots of 1 - z and of 1 + z."""
    one = cai.like(z[0], 1)
    return _sqrt((cai.sub(one, z[0]), cai.neg(z[1]))), _sqrt((cai.add(one, z[0]), z[1]))


def _cross(a: Pair, b: Pair) -> Value:
    """The imaginary part of conj(a) * b."""
    return cai.sub(cai.mul(a[0], b[1]), cai.mul(a[1], b[0]))


def _asin(z: Pair) -> Pair:
    below, above = _roots(z)
    product = cai.sub(cai.mul(below[0], above[0]), cai.mul(below[1], above[1]))
    return direction(z[0], product), cai.asinh(_cross(below, above))


def _acos(z: Pair) -> Pair:
    below, above = _roots(z)
    half = direction(below[0], above[0])
    return cai.mul(cai.like(half, 2), half), cai.asinh(_cross(above, below))


def _acosh(z: Pair) -> Pair:
    one = cai.like(z[0], 1)
    below, above = _sqrt((cai.sub(z[0], one), z[1])), _sqrt((cai.add(z[0], one), z[1]))
    real = cai.add(cai.mul(below[0], above[0]), cai.mul(below[1], above[1]))
    half = direction(below[1], above[0])
    return cai.asinh(real), cai.mul(cai.like(half, 2), half)


def _atanh(z: Pair) -> Pair:
    """On the right half-plane; near -1 the logarithm would be of 1 - (nearly 1)."""
    given, imaginary = z
    real = cai.abs_(given)
    one, two, four = (cai.like(real, n) for n in (1, 2, 4))
    square = cai.mul(imaginary, imaginary)
    away = cai.sub(one, real)
    ratio = cai.div(cai.mul(four, real), cai.add(cai.mul(away, away), square))
    x = cai.mul(cai.like(real, 0.25), expm1_log1p.log1p(ratio))
    y = direction(cai.mul(two, imaginary), cai.sub(cai.mul(away, cai.add(one, real)), square))
    return with_sign_of(x, given), cai.mul(cai.like(real, 0.5), y)


def sqrt(z: Value) -> Value:
    return cai.create_complex(*_sqrt(parts(z)))


def rsqrt(z: Value) -> Value:
    return cai.div(cai.like(z, 1), sqrt(z))


def asin(z: Value) -> Value:
    return cai.create_complex(*_asin(parts(z)))


def acos(z: Value) -> Value:
    return cai.create_complex(*_acos(parts(z)))


def acosh(z: Value) -> Value:
    return cai.create_complex(*_acosh(parts(z)))


def asinh(z: Value) -> Value:
    return cai.create_complex(*_over_i(_asin(_times_i(parts(z)))))


def atanh(z: Value) -> Value:
    return cai.create_complex(*_atanh(parts(z)))


def atan(z: Value) -> Value:
    return cai.create_complex(*_over_i(_atanh(_times_i(parts(z)))))


def tanh(z: Value) -> Value:
    """By tangent and hyperbolic sine, from where on the real part is one: 20 is far beyond."""
    real, imaginary = parts(z)
    one, far = cai.like(real, 1), cai.like(real, 20)
    kept = cai.minimum(cai.maximum(real, cai.neg(far)), far)
    slope, steep = cai.tan(imaginary), cai.sinh(kept)
    stretch, square = cai.add(one, cai.mul(slope, slope)), cai.mul(steep, steep)
    below = cai.add(one, cai.mul(stretch, square))
    across = cai.mul(cai.mul(stretch, steep), cai.sqrt(cai.add(one, square)))
    return cai.create_complex(cai.div(across, below), cai.div(slope, below))


def exp2(z: Value) -> Value:
    return cai.exp(cai.mul(z, cai.like(z, math.log(2))))


def expm1(z: Value) -> Value:
    real, imaginary = parts(z)
    sine = cai.sin(cai.mul(imaginary, cai.like(imaginary, 0.5)))
    lost = cai.mul(cai.like(real, 2), cai.mul(sine, sine))
    x = cai.sub(cai.mul(expm1_log1p.expm1(real), cai.cos(imaginary)), lost)
    return cai.create_complex(x, cai.mul(cai.exp(real), cai.sin(imaginary)))


def log1p(z: Value) -> Value:
    """Near zero by the square of the length of 1 + z, less one."""
    real, imaginary = parts(z)
    above = cai.add(cai.like(real, 1), real)
    square = cai.mul(imaginary, imaginary)
    gain = cai.add(cai.mul(real, cai.add(cai.like(real, 2), real)), square)
    near = cai.mul(cai.like(real, 0.5), expm1_log1p.log1p(gain))
    is_near = cai.less(distance(real, imaginary), cai.like(real, 0.5))
    x = cai.where(is_near, near, cai.log(distance(above, imaginary)))
    return cai.create_complex(x, direction(imaginary, above))


def logaddexp(x: Value, y: Value) -> Value:
    """From the one with the greater real part; two that are minus infinity stay so."""
    left, right = cai.real_part(x), cai.real_part(y)
    swap = cai.less(left, right)
    greater, smaller = cai.where(swap, y, x), cai.where(swap, x, y)
    total = cai.add(greater, log1p(cai.exp(cai.sub(smaller, greater))))
    nothing = cai.equal(cai.maximum(left, right), cai.like(left, -math.inf))
    return cai.where(nothing, smaller, total)
