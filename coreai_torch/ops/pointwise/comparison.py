"""Lower comparisons, logical ops, isnan, isinf, isfinite and isclose."""

from __future__ import annotations

import torch

from ...ir import dialect as cai
from ...ir.dialect import Binary, Value
from ...lowering import Ctx, Promote, case, decomposes, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten, isclose_broadcasts_equal_nan

_INF, _NAN = float("inf"), float("nan")
_NO_BROADCAST = "" if isclose_broadcasts_equal_nan() else "torch 2.11 and before raise for it"
_EDGES = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, _NAN, 1e-40)

_COMPARED = [
    case(f32(8, values=_EDGES), f32(8, 1, values=_EDGES)),
    case(f16(2, 3), f16(3)),
    case(bf16(4), bf16(4)),
    case(i32(4, values=(2**24, 2**24 + 1, -5, 7)), i32(4, values=(2**24 + 1, 2**24 + 1, 5, 7))),
    case(i64(6), f32(6)),
    case(u8(6), i8(6)),
    case(b1(2, 3), b1(3)),
    case(b1(4), i32(4)),
    case(f32(), f32(3)),
    case(i64(60, 1), i64(80)),
    case(f32(60, 80, values=_EDGES), f32(80, values=_EDGES[::-1])),
    case(f32(60, 1, values=_EDGES), f32(80, values=_EDGES[::-1])),
    case(f16(2, 60, 80), f16(2, 1, 80)),
]
_COMPARED_WITH_NUMBERS = [
    case(f32(60, 80, values=_EDGES), 0.0),
    case(i64(5_000), 3),
    case(f16(60, 80), _NAN),
    case(f32(8, values=_EDGES), 0),
    case(f32(8, values=_EDGES), _NAN),
    case(f16(4), 0.3),
    case(i64(6), 3),
    case(i32(6), 2.5),
    case(u8(4), -1),
    case(b1(4), True),
    case(b1(4), 1),
]
_COMPLEX = [case(c64(4), c64(1)), case(c64(3), f32(3))]
_COMPLEX_WITH_NUMBER = case(c64(3, values=(1 + 2j, 1 - 2j, 3.0)), 1 + 2j)


def _on_parts(op: Binary, x: Value, y: Value) -> tuple[Value, Value]:
    """Apply `op` to the real parts and to the imaginary parts."""
    real = op(cai.real_part(x), cai.real_part(y))
    return real, op(cai.imaginary_part(x), cai.imaginary_part(y))


@lowers(
    aten.eq.Scalar,
    promote=Promote.COMMON,
    cases=[*_COMPARED_WITH_NUMBERS, _COMPLEX_WITH_NUMBER],
)
@lowers(aten.eq.Tensor, promote=Promote.COMMON, cases=[*_COMPARED, *_COMPLEX])
def eq(ctx: Ctx, x: Value, other: Value) -> Value:
    if cai.is_complex(x):
        return cai.logical_and(*_on_parts(cai.equal, x, other))
    return cai.equal(x, other)


@lowers(
    aten.ne.Scalar,
    promote=Promote.COMMON,
    cases=[*_COMPARED_WITH_NUMBERS, _COMPLEX_WITH_NUMBER],
)
@lowers(aten.ne.Tensor, promote=Promote.COMMON, cases=[*_COMPARED, *_COMPLEX])
def ne(ctx: Ctx, x: Value, other: Value) -> Value:
    if cai.is_complex(x):
        return cai.logical_or(*_on_parts(cai.not_equal, x, other))
    return cai.not_equal(x, other)


def _greater(x: Value, y: Value) -> Value:
    return cai.logical_and(x, cai.logical_not(y)) if cai.is_bool(x) else cai.greater(x, y)


def _at_least(x: Value, y: Value) -> Value:
    """Return `x >= y`; for floats not `!(x < y)`, because NaN is neither."""
    if cai.is_float(x):
        return cai.logical_or(cai.greater(x, y), cai.equal(x, y))
    if cai.is_bool(x):
        return cai.logical_not(_greater(y, x))
    low, high, limits = cai.known_number(x), cai.known_number(y), torch.iinfo(cai.dtype(x))
    if high is not None and high > limits.min:
        return cai.greater(x, cai.like(x, high - 1))
    if low is not None and low < limits.max:
        return cai.greater(cai.like(x, low + 1), y)
    return cai.logical_not(cai.greater(y, x))


@lowers(aten.gt.Scalar, promote=Promote.COMMON, cases=_COMPARED_WITH_NUMBERS)
@lowers(aten.gt.Tensor, promote=Promote.COMMON, cases=_COMPARED)
def gt(ctx: Ctx, x: Value, other: Value) -> Value:
    return _greater(x, other)


@lowers(aten.lt.Scalar, promote=Promote.COMMON, cases=_COMPARED_WITH_NUMBERS)
@lowers(aten.lt.Tensor, promote=Promote.COMMON, cases=_COMPARED)
def lt(ctx: Ctx, x: Value, other: Value) -> Value:
    return _greater(other, x)


@lowers(aten.ge.Scalar, promote=Promote.COMMON, cases=_COMPARED_WITH_NUMBERS)
@lowers(aten.ge.Tensor, promote=Promote.COMMON, cases=_COMPARED)
def ge(ctx: Ctx, x: Value, other: Value) -> Value:
    return _at_least(x, other)


@lowers(aten.le.Scalar, promote=Promote.COMMON, cases=_COMPARED_WITH_NUMBERS)
@lowers(aten.le.Tensor, promote=Promote.COMMON, cases=_COMPARED)
def le(ctx: Ctx, x: Value, other: Value) -> Value:
    return _at_least(other, x)


_LOGIC = [
    case(b1(2, 3), b1(3)),
    case(f32(8, values=_EDGES), b1(8, 1)),
    case(i32(4, low=-1, high=1), f16(4)),
    case(c64(3), b1(3)),
    case(b1(), b1(3)),
]


@lowers(aten.logical_and.default, promote=Promote.BOOL, cases=_LOGIC)
def logical_and(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.logical_and(x, other)


@lowers(aten.logical_or.default, promote=Promote.BOOL, cases=_LOGIC)
def logical_or(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.logical_or(x, other)


@lowers(aten.logical_xor.default, promote=Promote.BOOL, cases=_LOGIC)
def logical_xor(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.logical_xor(x, other)


_QUESTIONS = [case(f32(8, values=_EDGES)), case(f16(4)), case(i32(4)), case(b1(3)), case(f32())]
_COMPLEX_QUESTION = case(c64(4, values=(1 + 2j, complex(_INF, 1), complex(1, _NAN), 0j)))


@lowers(aten.logical_not.default, promote=Promote.BOOL, cases=[*_QUESTIONS, _COMPLEX_QUESTION])
def logical_not(ctx: Ctx, x: Value) -> Value:
    return cai.logical_not(x)


def is_nan(x: Value) -> Value:
    """Return whether `x` is NaN: only NaN differs from itself."""
    return cai.not_equal(x, x)


def is_inf(x: Value) -> Value:
    """Return whether a float is an infinity of either sign."""
    return cai.equal(cai.abs_(x), cai.like(x, _INF))


@lowers(aten.isnan.default, cases=[*_QUESTIONS, _COMPLEX_QUESTION])
def isnan(ctx: Ctx, x: Value) -> Value:
    return cai.logical_or(*_on_parts(cai.not_equal, x, x)) if cai.is_complex(x) else is_nan(x)


@lowers(aten.isinf.default, cases=[*_QUESTIONS, _COMPLEX_QUESTION])
def isinf(ctx: Ctx, x: Value) -> Value:
    if cai.is_complex(x):
        return cai.logical_or(is_inf(cai.real_part(x)), is_inf(cai.imaginary_part(x)))
    return is_inf(x) if cai.is_float(x) else cai.not_equal(x, x)


@lowers(aten.isfinite.default, cases=[*_QUESTIONS, _COMPLEX_QUESTION])
def isfinite(ctx: Ctx, x: Value) -> Value:
    if cai.is_complex(x):
        return cai.logical_and(_is_finite(cai.real_part(x)), _is_finite(cai.imaginary_part(x)))
    return _is_finite(x) if cai.is_float(x) else cai.equal(x, x)


def _is_finite(x: Value) -> Value:
    return cai.less(cai.abs_(x), cai.like(x, _INF))


@lowers(aten.isposinf.default, cases=_QUESTIONS)
def isposinf(ctx: Ctx, x: Value) -> Value:
    return cai.equal(x, cai.like(x, _INF)) if cai.is_float(x) else cai.not_equal(x, x)


@lowers(aten.isneginf.default, cases=_QUESTIONS)
def isneginf(ctx: Ctx, x: Value) -> Value:
    return cai.equal(x, cai.like(x, -_INF)) if cai.is_float(x) else cai.not_equal(x, x)


@decomposes(
    aten.isclose.default,
    cases=[
        case(f32(8, values=_EDGES), f32(8, 1, values=_EDGES)),
        case(f32(8, values=_EDGES), f32(8, 1, values=_EDGES), equal_nan=True, void=_NO_BROADCAST),
        case(f32(4), f32(4), rtol=0.5, atol=0.1),
        case(i32(5), i32(5), rtol=0.0, atol=2.0),
        case(f16(5), f16(5), rtol=0.3),
        case(b1(4), b1(4)),
    ],
)
def isclose(
    x: torch.Tensor,
    other: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> torch.Tensor:
    is_close = x == other
    if equal_nan and (x.dtype.is_floating_point or x.dtype.is_complex):
        is_close = is_close | (torch.isnan(x) & torch.isnan(other))
    if rtol == 0 and atol == 0:
        return is_close
    wide = torch.float32 if not x.dtype.is_complex else x.dtype
    x, other = x.to(wide), other.to(wide)
    allowed, difference = atol + (rtol * other).abs(), (x - other).abs()
    return is_close | (torch.isfinite(difference) & (difference <= allowed))
