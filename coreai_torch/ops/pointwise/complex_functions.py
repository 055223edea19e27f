"""Functions of complex numbers that the dialect supports for real numbers only.

The inverse functions follow Kahan ("Branch cuts for complex elementary functions"): they use real
functions of sqrt(1 - z) and sqrt(1 + z), and stay accurate near the branch points.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from ...ir import dialect as cai
from ...ir.dialect import Value
from .._lib import expm1_log1p
from .abs_atan2 import direction, distance
from .complex import quotient
from .sign import with_sign_of

Pair: TypeAlias = tuple[Value, Value]  # real and imaginary part


def parts(z: Value) -> Pair:
    """Return the real and imaginary part of a complex value."""
    return cai.real_part(z), cai.imaginary_part(z)


def _sqrt(z: Pair) -> Pair:
    """Return the principal square root, without subtracting nearly equal numbers."""
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
    """Return the square roots of 1 - z and of 1 + z."""
    one = cai.like(z[0], 1)
    return _sqrt((cai.sub(one, z[0]), cai.neg(z[1]))), _sqrt((cai.add(one, z[0]), z[1]))


def _cross(a: Pair, b: Pair) -> Value:
    """Return the imaginary part of conj(a) * b."""
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
    """Compute on the right half-plane and restore the sign; near -1, log would lose precision."""
    given, imaginary = z
    real = cai.abs_(given)
    one, two, four = (cai.like(real, n) for n in (1, 2, 4))
    square = cai.mul(imaginary, imaginary)
    gap = cai.sub(one, real)
    ratio = cai.div(cai.mul(four, real), cai.add(cai.mul(gap, gap), square))
    x = cai.mul(cai.like(real, 0.25), expm1_log1p.log1p(ratio))
    y = direction(cai.mul(two, imaginary), cai.sub(cai.mul(gap, cai.add(one, real)), square))
    return with_sign_of(x, given), cai.mul(cai.like(real, 0.5), y)


def sqrt(z: Value) -> Value:
    return cai.create_complex(*_sqrt(parts(z)))


def rsqrt(z: Value) -> Value:
    return quotient(cai.like(z, 1), sqrt(z))


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
    """Combine tan and sinh; the real part is clamped to +-20, where tanh is 1 in float32."""
    real, imaginary = parts(z)
    one, limit = cai.like(real, 1), cai.like(real, 20)
    clamped = cai.minimum(cai.maximum(real, cai.neg(limit)), limit)
    tangent, sine = cai.tan(imaginary), cai.sinh(clamped)
    secant_square, square = cai.add(one, cai.mul(tangent, tangent)), cai.mul(sine, sine)
    denominator = cai.add(one, cai.mul(secant_square, square))
    numerator = cai.mul(cai.mul(secant_square, sine), cai.sqrt(cai.add(one, square)))
    return cai.create_complex(cai.div(numerator, denominator), cai.div(tangent, denominator))


def exp2(z: Value) -> Value:
    return cai.exp(cai.mul(z, cai.like(z, math.log(2))))


def expm1(z: Value) -> Value:
    real, imaginary = parts(z)
    sine = cai.sin(cai.mul(imaginary, cai.like(imaginary, 0.5)))
    correction = cai.mul(cai.like(real, 2), cai.mul(sine, sine))
    x = cai.sub(cai.mul(expm1_log1p.expm1(real), cai.cos(imaginary)), correction)
    return cai.create_complex(x, cai.mul(cai.exp(real), cai.sin(imaginary)))


def log1p(z: Value) -> Value:
    """Compute the real part near zero from `|1 + z|**2 - 1`, without cancellation."""
    real, imaginary = parts(z)
    above = cai.add(cai.like(real, 1), real)
    square = cai.mul(imaginary, imaginary)
    norm_minus_one = cai.add(cai.mul(real, cai.add(cai.like(real, 2), real)), square)
    near = cai.mul(cai.like(real, 0.5), expm1_log1p.log1p(norm_minus_one))
    is_near = cai.less(distance(real, imaginary), cai.like(real, 0.5))
    x = cai.where(is_near, near, cai.log(distance(above, imaginary)))
    return cai.create_complex(x, direction(imaginary, above))


def logaddexp(x: Value, y: Value) -> Value:
    """Factor out the operand with the larger real part; return -inf if both are -inf."""
    left, right = cai.real_part(x), cai.real_part(y)
    swap = cai.less(left, right)
    greater, smaller = cai.where(swap, y, x), cai.where(swap, x, y)
    total = cai.add(greater, log1p(cai.exp(cai.sub(smaller, greater))))
    both_minus_inf = cai.equal(cai.maximum(left, right), cai.like(left, -math.inf))
    return cai.where(both_minus_inf, smaller, total)
