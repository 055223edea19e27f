"""Lower abs, hypot, atan2 and angle, for real and complex numbers."""

from __future__ import annotations

import math

import torch

from ...ir import dialect as cai
from ...ir.build import Build
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i32, i64, u8
from ...torch_compat import aten
from .comparison import is_inf, is_nan
from .sign import is_negative, with_sign_of

_INF, _NAN = float("inf"), float("nan")
_EDGES = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, _NAN, 0.3, -7.5)
_FAR = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, 3e38, -1e-40, 0.3)
_COMPLEX = c64(5, values=(3 + 4j, -3e30 + 4e30j, complex(-_INF, _NAN), 0j, complex(-1, -0.0)))
_NEAR = (0.0, -0.0, 1.0, -1.0, 0.3, -7.5, 1e-3, -4e9)
_COMPLEX_NEAR = c64(5, values=(3 + 4j, -3e30 + 4e30j, 0j, complex(-1, -0.0), complex(-0.0, 0.0)))


def plain_distance(x: Value, y: Value) -> Value:
    """Return `sqrt(x**2 + y**2)`, which is NaN for two infinities without `exact`.

    Guard of the first kind: the square of 1e20 overflows, that of 1e-30 is 0, and in float16 that
    of 256 overflows. So the larger operand is a factor.
    """
    if Build.current().exact:
        return distance(x, y)
    larger, smaller = _ordered(x, y)
    least = cai.like(x, torch.finfo(cai.dtype(x)).tiny)  # 0 / 0 is NaN
    return _scaled(larger, cai.div(smaller, cai.maximum(larger, least)))


def distance(x: Value, y: Value) -> Value:
    """Return `sqrt(x**2 + y**2)`, infinite if either is infinite, even if the other is NaN."""
    larger, smaller = _ordered(x, y)
    divisor = cai.where(cai.equal(larger, cai.like(x, 0)), cai.like(x, 1), larger)
    is_far = cai.logical_or(is_inf(x), is_inf(y))
    return cai.where(is_far, cai.like(x, _INF), _scaled(larger, cai.div(smaller, divisor)))


def _ordered(x: Value, y: Value) -> tuple[Value, Value]:
    x, y = cai.abs_(x), cai.abs_(y)
    return cai.maximum(x, y), cai.minimum(x, y)


def _scaled(larger: Value, slope: Value) -> Value:
    return cai.mul(larger, cai.sqrt(cai.add(cai.mul(slope, slope), cai.like(slope, 1))))


def length(x: Value) -> Value:
    """Return the absolute value of real or complex elements."""
    if cai.is_complex(x):
        return plain_distance(cai.real_part(x), cai.imaginary_part(x))
    return cai.abs_(x) if cai.dtype(x).is_signed else x


def direction(y: Value, x: Value) -> Value:
    """Return `atan2(y, x)`; the sign bits decide where the point lies on an axis."""
    zero, one = cai.like(y, 0), cai.like(y, 1)
    both_far = cai.logical_and(is_inf(y), is_inf(x))  # inf / inf is NaN; 1 / 1 has the same angle
    slope = cai.div(
        cai.where(both_far, with_sign_of(one, y), y), cai.where(both_far, with_sign_of(one, x), x)
    )
    at_origin = cai.logical_and(cai.equal(y, zero), cai.equal(x, zero))
    angle = cai.atan(cai.where(at_origin, y, slope))
    turned = cai.add(angle, with_sign_of(cai.like(y, math.pi), y))
    return cai.where(is_negative(x), turned, angle)


def plain_direction(y: Value, x: Value) -> Value:
    """Return `atan2(y, x)`, which is NaN without `exact` where both are infinite.

    Guards of the first kind: `atan2(0, 0)` is 0, and the sign of a zero counts, as -0.0 is left of
    0.0: its reciprocal is -inf.
    """
    if Build.current().exact:
        return direction(y, x)
    zero, one = cai.like(y, 0), cai.like(y, 1)
    slope = cai.where(cai.equal(y, zero), y, cai.div(y, cai.abs_(x)))
    angle, half_turn = cai.atan(slope), cai.like(y, math.pi)
    below, left = (cai.less(cai.div(one, v), zero) for v in (y, x))
    turned = cai.sub(cai.where(below, cai.neg(half_turn), half_turn), angle)
    return cai.where(left, turned, angle)


@lowers(
    aten.abs.default,
    cases=[
        case(f32(9, values=_EDGES)),
        case(f16(4)),
        case(i32(3, values=(-(2**31), -(2**24) - 1, 5))),
        case(i64(4)),
        case(u8(3)),
        case(_COMPLEX, exact=True),
        case(_COMPLEX_NEAR),
        case(f32()),
    ],
)
def abs_(ctx: Ctx, x: Value) -> Value:
    """Without `exact`, a complex number of two infinities gives NaN."""
    return length(x)


@lowers(
    aten.hypot.default,
    promote=Promote.RESULT,
    cases=[
        case(f32(9, values=_FAR), f32(9, 1, values=(*_FAR[:7], _NAN, 1e30)), exact=True),
        case(f32(8, values=_NEAR), f32(8, 1, values=_NEAR)),
        case(f32(2, values=(3e30, -3e37)), f32(2, 1, values=(4e30, 2e38))),
        case(f32(2, values=(3e-30, -1e-25)), f32(2, 1, values=(4e-30, 0.0))),
        case(f16(2, 3, high=300), f16(3, high=300)),
        case(bf16(3), bf16(3)),
        case(f32(), f32(3)),
        case(f32(8, values=_FAR[:8], constant=True), f32(8), exact=True),
    ],
)
def hypot(ctx: Ctx, x: Value, other: Value) -> Value:
    """Without `exact`, it is NaN for two infinities, and for an infinity and NaN."""
    return plain_distance(x, other)


@lowers(
    aten.atan2.default,
    promote=Promote.RESULT,
    cases=[
        case(f32(9, values=_EDGES), f32(9, 1, values=_EDGES), exact=True),
        case(f32(8, values=_NEAR), f32(8, 1, values=_NEAR)),
        case(f32(2, 3), f32(3)),
        case(f16(4), f16(4)),
        case(bf16(4), bf16(4)),
        case(i32(4), i32(4)),
        case(b1(3), b1(3)),
        case(f32(), f32(3)),
    ],
)
def atan2(ctx: Ctx, x: Value, other: Value) -> Value:
    """Without `exact`, it is NaN where both operands are infinite."""
    return plain_direction(x, other)


@lowers(
    aten.angle.default,
    cases=[
        case(_COMPLEX, exact=True),
        case(_COMPLEX_NEAR),
        case(c64(2, 3)),
        case(f32(9, values=_EDGES)),
        case(f16(4)),
        case(i32(4)),
        case(b1(3)),
    ],
)
def angle(ctx: Ctx, x: Value) -> Value:
    """Return pi for a negative real number, 0 for a positive one, NaN for NaN.

    Without `exact`, it is NaN where both parts are infinite.
    """
    if cai.is_complex(x):
        return plain_direction(cai.imaginary_part(x), cai.real_part(x))
    x = cai.cast(x, ctx.out_dtype)
    turn = cai.where(cai.less(x, cai.like(x, 0)), cai.like(x, math.pi), cai.like(x, 0))
    return cai.where(is_nan(x), x, turn)
