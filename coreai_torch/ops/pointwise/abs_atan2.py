"""Lower abs, hypot, atan2 and angle, for real and complex numbers."""

from __future__ import annotations

import math

from ...ir import dialect as cai
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


def distance(x: Value, y: Value) -> Value:
    """Return `sqrt(x**2 + y**2)`, scaled by the larger operand so that squares do not overflow."""
    larger, smaller = cai.abs_(x), cai.abs_(y)
    larger, smaller = cai.maximum(larger, smaller), cai.minimum(larger, smaller)
    zero, one = cai.like(x, 0), cai.like(x, 1)
    slope = cai.div(smaller, cai.where(cai.equal(larger, zero), one, larger))
    scaled = cai.mul(larger, cai.sqrt(cai.add(one, cai.mul(slope, slope))))
    # Infinite if either operand is infinite, even if the other is NaN.
    return cai.where(cai.logical_or(is_inf(x), is_inf(y)), cai.like(x, _INF), scaled)


def length(x: Value) -> Value:
    """Return the absolute value of real or complex elements."""
    if cai.is_complex(x):
        return distance(cai.real_part(x), cai.imaginary_part(x))
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


@lowers(
    aten.abs.default,
    cases=[
        case(f32(9, values=_EDGES)),
        case(f16(4)),
        case(i32(3, values=(-(2**31), -(2**24) - 1, 5))),
        case(i64(4)),
        case(u8(3)),
        case(_COMPLEX),
        case(f32()),
    ],
)
def abs_(ctx: Ctx, x: Value) -> Value:
    return length(x)


@lowers(
    aten.hypot.default,
    promote=Promote.WIDE,
    cases=[
        case(f32(9, values=_FAR), f32(9, 1, values=(*_FAR[:7], _NAN, 1e30))),
        case(f16(2, 3, high=300), f16(3, high=300)),
        case(bf16(3), bf16(3)),
        case(f32(), f32(3)),
        case(f32(8, values=_FAR[:8], constant=True), f32(8)),
    ],
)
def hypot(ctx: Ctx, x: Value, other: Value) -> Value:
    return distance(x, other)


@lowers(
    aten.atan2.default,
    promote=Promote.WIDE,
    cases=[
        case(f32(9, values=_EDGES), f32(9, 1, values=_EDGES)),
        case(f32(2, 3), f32(3)),
        case(f16(4), f16(4)),
        case(bf16(4), bf16(4)),
        case(i32(4), i32(4)),
        case(b1(3), b1(3)),
        case(f32(), f32(3)),
    ],
)
def atan2(ctx: Ctx, x: Value, other: Value) -> Value:
    return direction(x, other)


@lowers(
    aten.angle.default,
    cases=[
        case(_COMPLEX),
        case(c64(2, 3)),
        case(f32(9, values=_EDGES)),
        case(f16(4)),
        case(i32(4)),
        case(b1(3)),
    ],
)
def angle(ctx: Ctx, x: Value) -> Value:
    """Return pi for a negative real number, 0 for a positive one, NaN for NaN."""
    if cai.is_complex(x):
        return direction(cai.imaginary_part(x), cai.real_part(x))
    x = cai.cast(x, ctx.out_dtype)
    turn = cai.where(cai.less(x, cai.like(x, 0)), cai.like(x, math.pi), cai.like(x, 0))
    return cai.where(is_nan(x), x, turn)
