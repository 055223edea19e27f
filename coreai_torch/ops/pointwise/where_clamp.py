"""Lower where, clamp, maximum, minimum, fmax, fmin and nan_to_num."""

from __future__ import annotations

import math

import torch

from ...errors import UnsupportedArgumentError
from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, Number, Promote, case, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten, clamp_ignores_nan_min, clamp_wraps_negative_bounds
from .comparison import is_nan

_INF, _NAN = float("inf"), float("nan")
_OUT_OF_RANGE = "torch 2.14 and before raise" if clamp_wraps_negative_bounds() else ""
_EDGES = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, _NAN, 0.3)
_EXACT = (2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31), 7)


@lowers(
    aten.where.self,
    cases=[
        case(b1(2, 3), f32(3), f32(2, 1)),
        case(b1(3), f32(3), i64()),
        case(b1(3), i32(3), i32(3)),
        case(b1(4), b1(4), b1(4)),
        case(b1(3), c64(3), f32(3)),
        case(b1(3), f16(3), f16(3)),
        case(b1(), f32(2), f32(2)),
        case(b1(8), f32(8, values=_EDGES), f32(constant=True)),
        case(b1(2, 70), f32(2, 70, values=_EDGES), f32(constant=True)),
        case(b1(70), i64(values=(7,), constant=True), i64(values=(-5,), constant=True)),
        case(b1(2, 1), f16(70), f16(constant=True)),
    ],
)
def where(ctx: Ctx, condition: Value, x: Value, other: Value) -> Value:
    return cai.where(condition, cai.cast(x, ctx.out_dtype), cai.cast(other, ctx.out_dtype))


def _greatest(x: Value, y: Value) -> Value:
    return cai.logical_or(x, y) if cai.is_bool(x) else cai.maximum(x, y)


def _least(x: Value, y: Value) -> Value:
    return cai.logical_and(x, y) if cai.is_bool(x) else cai.minimum(x, y)


def _limit(x: Value, bound: Number, *, lower: bool) -> Value | None:
    """Return a bound in the dtype of `x`, or None for a bound that every value satisfies."""
    if not (isinstance(bound, int) and cai.is_integer(x)):
        return cai.like(x, bound)
    info = torch.iinfo(cai.dtype(x))
    if info.min <= bound <= info.max or info.bits == 32:  # 64-bit values are narrowed to 32
        return cai.like(x, min(max(bound, info.min), info.max))
    if clamp_wraps_negative_bounds():
        if info.min == 0 and -info.max <= bound < 0:
            return cai.like(x, bound + info.max + 1)  # torch wraps it: -2 bounds a uint8 at 254
    elif (bound < info.min) == lower:
        return None
    raise UnsupportedArgumentError(
        f"clamp cannot bound {cai.dtype(x)} at {bound}: torch raises for it\n"
        f"  try   pass a bound from {info.min} to {info.max}"
    )


def clamped(x: Value, least: Number | None, most: Number | None) -> Value:
    """Return `x` clamped to two bounds; the upper bound wins where they cross."""
    ignored = isinstance(least, float) and math.isnan(least) and clamp_ignores_nan_min()
    if least is not None and not (ignored and most is None):
        bound = _limit(x, least, lower=True)
        x = x if bound is None else _greatest(x, bound)
    if most is None:
        return x
    bound = _limit(x, most, lower=False)
    return x if bound is None else _least(x, bound)


@lowers(
    aten.clamp.Tensor,
    cases=[
        case(f32(8, values=_EDGES), f32(8, 1, values=_EDGES), f32(values=(0.5,))),
        case(f32(2, 3), min=f32(3)),
        case(f32(2, 3), max=f32(2, 1)),
        case(i32(5, values=_EXACT), i32(5), i32(5, values=_EXACT)),
        case(i32(4), f32(4), None),
        case(f16(4), f16(4), f16(4)),
        case(b1(4), max=b1(4, 1)),
    ],
)
@lowers(
    aten.clamp.default,
    cases=[
        case(f32(8, values=_EDGES), -0.5, 0.5),
        case(f32(8, values=_EDGES), 1.0, -1.0),
        case(f32(8, values=_EDGES), min=_NAN),
        case(f32(8, values=_EDGES), max=_INF),
        case(i32(5, values=_EXACT), -(2**24) - 1, 2**24 + 1),
        case(i64(5), min=0),
        case(i64(5), max=2**62),
        case(i32(5), 0.5, 2.5),
        case(u8(4), max=3),
        case(u8(4), -2, 3),
        case(u8(4), min=-250),
        case(u8(4), max=300, void=_OUT_OF_RANGE),
        case(i8(4), -300, 300, void=_OUT_OF_RANGE),
        case(f16(4), -0.3, 0.3),
        case(f32(), 0, None),
    ],
)
def clamp(ctx: Ctx, x: Value, min: Number | None, max: Number | None) -> Value:
    return clamped(cai.cast(x, ctx.out_dtype), min, max)


_EXTREMES = [
    case(f32(8, values=_EDGES), f32(8, 1, values=_EDGES)),
    case(i32(5, values=_EXACT), i32(5, 1, values=_EXACT)),
    case(f16(2, 3), f16(3)),
    case(bf16(3), bf16(3)),
    case(i64(4), f32(4)),
    case(b1(4), b1(4, 1)),
    case(u8(4), u8(4)),
    case(f32(), f32(3)),
]


@lowers(aten.maximum.default, promote=Promote.COMMON, cases=_EXTREMES)
def maximum(ctx: Ctx, x: Value, other: Value) -> Value:
    return _greatest(x, other)


@lowers(aten.minimum.default, promote=Promote.COMMON, cases=_EXTREMES)
def minimum(ctx: Ctx, x: Value, other: Value) -> Value:
    return _least(x, other)


def _ignore_nan(extreme: Value, x: Value, other: Value) -> Value:
    """Return `extreme`, or the other operand where one is NaN."""
    if not cai.is_float(x):
        return extreme
    return cai.where(is_nan(x), other, cai.where(is_nan(other), x, extreme))


@lowers(aten.fmax.default, promote=Promote.COMMON, cases=_EXTREMES)
def fmax(ctx: Ctx, x: Value, other: Value) -> Value:
    return _ignore_nan(_greatest(x, other), x, other)


@lowers(aten.fmin.default, promote=Promote.COMMON, cases=_EXTREMES)
def fmin(ctx: Ctx, x: Value, other: Value) -> Value:
    return _ignore_nan(_least(x, other), x, other)


@lowers(
    aten.nan_to_num.default,
    cases=[
        case(f32(8, values=_EDGES)),
        case(f32(8, values=_EDGES), nan=2.5, posinf=1.0, neginf=-1.0),
        case(f32(8, values=_EDGES), posinf=9.0),
        case(f32(8, values=_EDGES), posinf=-9.0, neginf=2.0),
        case(f32(8, values=_EDGES), posinf=_INF, neginf=0.5),
        case(f32(8, values=_EDGES), nan=_INF, posinf=0.0),
        case(f16(8, values=_EDGES)),
        case(bf16(8, values=_EDGES), neginf=-3.0),
        case(i32(4)),
        case(b1(3)),
    ],
)
def nan_to_num(
    ctx: Ctx, x: Value, nan: float | None, posinf: float | None, neginf: float | None
) -> Value:
    if not cai.is_float(x):
        return x
    return cai.where(is_nan(x), cai.like(x, nan or 0.0), _without_infinities(x, posinf, neginf))


def _without_infinities(x: Value, posinf: float | None, neginf: float | None) -> Value:
    """Replace infinities; the results of NaN are not defined."""
    info = torch.finfo(cai.dtype(x))
    finite = _between(x, info.min, info.max)
    if posinf is None and neginf is None:
        return finite
    low, high = info.min if neginf is None else neginf, info.max if posinf is None else posinf
    if low <= high:
        return cai.where(cai.not_equal(finite, x), _between(x, low, high), x)
    of_high = cai.where(cai.equal(x, cai.like(x, _INF)), cai.like(x, high), x)
    return cai.where(cai.equal(x, cai.like(x, -_INF)), cai.like(x, low), of_high)


def _between(x: Value, low: float, high: float) -> Value:
    return cai.maximum(cai.minimum(x, cai.like(x, high)), cai.like(x, low))
