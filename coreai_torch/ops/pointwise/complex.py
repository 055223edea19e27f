"""Lower complex and polar; compute functions of complex numbers that the dialect lacks.

The inverse functions follow Kahan ("Branch cuts for complex elementary functions"): they use real
functions of sqrt(1 - z) and sqrt(1 + z), and stay accurate near the branch points.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, case, decomposes, lowers
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib import expm1_log1p
from .abs_atan2 import direction, distance
from .sign import with_sign_of

_INF, _NAN = float("inf"), float("nan")


@lowers(
    aten.complex.default,
    cases=[case(f32(2, 3), f32(2, 3)), case(f32(2, 3), f32(3)), case(f32(), f32())],
)
def complex_(ctx: Ctx, real: Value, imag: Value) -> Value:
    lead = ctx.out.rank
    sizes = [
        b if isinstance(a, int) and a == 1 else a
        for a, b in zip(_sizes_at_rank(real, lead), _sizes_at_rank(imag, lead), strict=True)
    ]
    dims = ctx.dims(sizes)
    return cai.create_complex(cai.broadcast_to(real, dims), cai.broadcast_to(imag, dims))


def _sizes_at_rank(x: Value, rank: int) -> list[cai.Dim]:
    """Return the sizes of `x` with leading ones up to `rank`."""
    return [*([1] * (rank - x.type.rank)), *cai.sizes(x)]


@decomposes(aten.polar.default, cases=[case(f32(2, 3), f32(2, 3)), case(f32(2, 3), f32(3))])
def polar(length: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return torch.complex(length * angle.cos(), length * angle.sin())


def quotient(x: Value, y: Value) -> Value:
    """Return `x / y` of numbers of one dtype; complex ones by Smith's algorithm, as in torch.

    The runtime (coreai-core 1.0.0b3) divides by the square of the magnitude, which is 0 or
    infinite for numbers below 1e-23 or above 1e19.
    """
    if not cai.is_complex(x):
        return cai.div(x, y)
    (a, b), (c, d) = ((cai.real_part(z), cai.imaginary_part(z)) for z in (x, y))
    zero, one = cai.like(c, 0), cai.like(c, 1)
    swapped = cai.less(cai.abs_(c), cai.abs_(d))
    large, small = cai.where(swapped, d, c), cai.where(swapped, c, d)
    is_zero = cai.equal(large, zero)
    ratio = cai.where(is_zero, zero, cai.div(small, cai.where(is_zero, one, large)))
    whole = cai.add(large, cai.mul(small, ratio))
    scale = cai.div(one, cai.where(is_zero, cai.abs_(large), whole))
    first, second = cai.where(swapped, b, a), cai.where(swapped, a, b)
    real = cai.mul(cai.add(first, cai.mul(second, ratio)), scale)
    imaginary = cai.mul(cai.sub(second, cai.mul(first, ratio)), scale)
    return cai.create_complex(real, cai.where(swapped, cai.neg(imaginary), imaginary))


def power(x: Value, exponent: Value, known: Any) -> Value:
    """Return `x ** exponent` of complex values; `known` is the exponent if it is a number.

    coreai.pow (coreai-core 1.0.0b3) returns NaN for a zero base, and treats a negative base without
    imaginary part as positive: (-8+0j) ** 3 would be 512.
    """
    if known == 0:
        return cai.broadcast_to(cai.like(x, 1), cai.sizes(x))
    if known in (1, 2, 3):
        square = x if known == 1 else cai.mul(x, x)
        return cai.mul(square, x) if known == 3 else square
    if known == -1:
        return quotient(cai.like(x, 1), x)
    real, imaginary = cai.real_part(x), cai.imaginary_part(x)
    exponent_real, exponent_imaginary = cai.real_part(exponent), cai.imaginary_part(exponent)
    zero, one = cai.like(real, 0), cai.like(real, 1)
    magnitude, angle = distance(real, imaginary), direction(imaginary, real)
    at_zero = cai.equal(magnitude, zero)
    log = cai.log(cai.where(at_zero, one, magnitude))
    scale = cai.exp(cai.sub(cai.mul(exponent_real, log), cai.mul(exponent_imaginary, angle)))
    phase = cai.add(cai.mul(exponent_real, angle), cai.mul(exponent_imaginary, log))
    nan = cai.like(real, _NAN)
    falling, rising = cai.less(exponent_real, zero), cai.greater(exponent_real, zero)
    zero_result = (
        cai.where(rising, zero, cai.where(falling, cai.like(real, _INF), nan)),
        cai.where(rising, zero, nan),
    )
    result = cai.mul(scale, cai.cos(phase)), cai.mul(scale, cai.sin(phase))
    return cai.create_complex(
        *(cai.where(at_zero, z, f) for z, f in zip(zero_result, result, strict=True))
    )


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
