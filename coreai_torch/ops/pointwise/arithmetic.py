"""Lower add, sub, mul, div, remainder, fmod and pow.

The engine promotes the operands before the call and casts the result to the node's dtype.
"""

from __future__ import annotations

import torch

from ...ir import dialect as cai
from ...ir.dialect import Binary, Value
from ...lowering import Ctx, Number, Promote, case, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .complex import power
from .rounding import floor

_INF, _NAN = float("inf"), float("nan")
_LEAST = -(2**31) + 1  # torch itself crashes on -2**31 divided by -1

_ADDITIVE = [
    case(f32(2, 3), f32(3)),
    case(f32(4, 1), f32(1, 5)),
    case(f16(2, 3), 0.5),
    case(bf16(2, 3), bf16(2, 3)),
    case(i32(4), f32(4)),
    case(i64(4), 3),
    case(u8(4), 250),
    case(f32(), f32(3)),
    case(c64(3), c64(3)),
    case(f32(2, 3), f32(2, 3), alpha=3),
    case(f16(2, 3, high=60), f16(2, 3, high=60), alpha=7.3),
    case(i32(2, 3), i32(2, 3), alpha=-2),
]
_SCALAR = [case(f32(2, 3), 2.5), case(i64(4), 3), case(i32(3), 2, 4)]


def _combine_scaled(op: Binary, x: Value, other: Value, alpha: Number) -> Value:
    if not isinstance(alpha, Value) and alpha == 1:
        return op(x, other)
    x, other = cai.wide(x), cai.wide(other)  # round once, not twice
    return op(x, cai.mul(other, cai.like(other, alpha)))


@lowers(aten.add.Scalar, promote=Promote.COMMON, cases=_SCALAR)
@lowers(
    aten.add.Tensor,
    promote=Promote.COMMON,
    cases=[*_ADDITIVE, case(b1(4), b1(4)), case(b1(4), True)],
)
def add(ctx: Ctx, x: Value, other: Value, alpha: Number) -> Value:
    if cai.is_bool(x):
        return cai.logical_or(x, other) if alpha else x
    return _combine_scaled(cai.add, x, other, alpha)


@lowers(aten.sub.Scalar, promote=Promote.COMMON, cases=_SCALAR)
@lowers(aten.sub.Tensor, promote=Promote.COMMON, cases=_ADDITIVE)
def sub(ctx: Ctx, x: Value, other: Value, alpha: Number) -> Value:
    return _combine_scaled(cai.sub, x, other, alpha)


@lowers(aten.mul.Scalar, promote=Promote.COMMON, cases=[case(f32(2, 3), 2.5), case(i64(4), 3)])
@lowers(
    aten.mul.Tensor,
    promote=Promote.COMMON,
    cases=[
        case(f32(2, 3), f32(3)),
        case(f16(2, 3), 0.5),
        case(f16(2, 3, low=1e-4, high=1e-3), 1e5),
        case(bf16(3, values=(0.0, -0.0, 0.5)), -3.4028234663852886e38),
        case(i32(4), 2.5),
        case(i64(3), i32(3)),
        case(b1(4), b1(4)),
        case(b1(4), f32(4)),
        case(c64(3), c64(3)),
        case(f32(), f32()),
    ],
)
def mul(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.logical_and(x, other) if cai.is_bool(x) else cai.mul(x, other)


# Every combination of signs.
_DIVIDENDS = i32(6, values=(7, -7, 6, -6, _LEAST, 0))
_DIVISORS = i32(6, 1, values=(2, -2, 3, -1, 7, 2**31 - 1))
_FLOATS = f32(9, values=(7.3, -7.3, 1.0, -1.0, 0.0, _INF, -_INF, _NAN, 0.3))
_FLOAT_DIVISORS = f32(9, 1, values=(2.5, -2.5, 0.1, -0.1, _INF, -_INF, _NAN, 0.0, 1e-3))


@lowers(aten.div.Scalar, promote=Promote.RESULT, cases=[case(f32(3), 2.5), case(i64(4), 3)])
@lowers(
    aten.div.Tensor,
    promote=Promote.RESULT,
    cases=[
        case(_FLOATS, _FLOAT_DIVISORS),
        case(f16(2, 3), 3),
        case(f16(2, 3, low=1e-4, high=1e-3), 1e-6),
        case(bf16(3), bf16(3)),
        case(i32(4), i32(4, values=(2, -3, 0, 7))),
        case(i64(4), 0.5),
        case(b1(4), b1(4)),
        case(c64(3), c64(3)),
        case(f32(), f32(3)),
    ],
)
def div(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.div(x, other)


def _quotient(op: Binary, x: Value, divisor: Value) -> Value:
    """Return an integer quotient for any divisor.

    Division by 0 must not crash (torch raises), and division by -1 may wrap around.
    """
    known = cai.known_number(divisor)
    if known is not None and known not in (0, -1):
        return op(x, divisor)
    quotient = op(x, _safe_divisor(divisor))
    if not cai.dtype(x).is_signed:
        return quotient
    return cai.where(cai.equal(divisor, cai.like(divisor, -1)), cai.neg(x), quotient)


def _safe_divisor(divisor: Value) -> Value:
    """Replace 0 and -1 by 1: the runtime (1.0.0b3) crashes on 1 // 0 and on -2**31 // -1."""
    unsafe = cai.equal(divisor, cai.like(divisor, 0))
    if cai.dtype(divisor).is_signed:
        unsafe = cai.logical_or(unsafe, cai.equal(divisor, cai.like(divisor, -1)))
    return cai.where(unsafe, cai.like(divisor, 1), divisor)


def _signs_differ(x: Value, y: Value) -> Value:
    zero = cai.like(x, 0)
    return cai.logical_xor(cai.less(x, zero), cai.less(y, zero))


def _floor_divide(x: Value, y: Value) -> Value:
    """Return the float `x // y` from the exact remainder, as in Python: 1.0 // 0.1 is 9.0."""
    zero, one, ratio = cai.like(x, 0), cai.like(x, 1), cai.div(x, y)
    modulo = cai.modulo(x, y)
    quotient = cai.div(cai.sub(x, modulo), y)
    wrong_sign = cai.logical_and(cai.not_equal(modulo, zero), _signs_differ(modulo, y))
    quotient = cai.where(wrong_sign, cai.sub(quotient, one), quotient)
    floored = floor(quotient)
    nearly_next = cai.greater(cai.sub(quotient, floored), cai.like(x, 0.5))
    floored = cai.where(nearly_next, cai.add(floored, one), floored)
    signed_zero = cai.mul(ratio, zero)
    floored = cai.where(cai.equal(quotient, zero), signed_zero, floored)
    return cai.where(cai.equal(y, zero), ratio, floored)


_ROUNDED = [
    case(_DIVIDENDS, _DIVISORS, rounding_mode=mode) for mode in (None, "trunc", "floor")
] + [
    case(_FLOATS, _FLOAT_DIVISORS, rounding_mode=mode) for mode in (None, "trunc", "floor")
]  # fmt: skip


@lowers(
    aten.div.Scalar_mode,
    promote=Promote.WIDE,
    cases=[
        case(_DIVIDENDS, 2, rounding_mode="floor"),
        case(_DIVIDENDS, -1, rounding_mode="trunc"),
        case(f16(9), 0.3, rounding_mode="floor"),
        case(f16(99, low=-60, high=60), 0.3, rounding_mode="trunc"),
        case(i64(4), 3, rounding_mode=None),
    ],
)
@lowers(
    aten.div.Tensor_mode,
    promote=Promote.WIDE,
    cases=[
        *_ROUNDED,
        case(f16(99, low=-60, high=60), f16(99), rounding_mode="floor"),
        case(f16(99, low=-60, high=60), f16(99), rounding_mode="trunc"),
        case(bf16(99, low=-60, high=60), bf16(99), rounding_mode="floor"),
        case(bf16(99, low=-60, high=60), bf16(99), rounding_mode="trunc"),
        case(bf16(99, low=-60, high=60), 0.3, rounding_mode="floor"),
        case(u8(3), u8(3, low=1), rounding_mode="floor"),
        case(i8(3), i8(3, values=(-1, 3, 7)), rounding_mode="floor"),
        case(i64(4), f32(4), rounding_mode="floor"),
    ],
)
def div_mode(ctx: Ctx, x: Value, other: Value, rounding_mode: str | None) -> Value:
    # float16, bfloat16: torch computes in float32 only if the divisor is a number
    if cai.known_number(other) is None:
        x, other = cai.cast(x, ctx.out_dtype), cai.cast(other, ctx.out_dtype)
    if rounding_mode is None:
        return cai.div(x, other)
    if rounding_mode == "floor":
        return _floor_divide(x, other) if cai.is_float(x) else _quotient(cai.floor_divide, x, other)
    return cai.trunc(cai.div(x, other)) if cai.is_float(x) else _quotient(cai.div, x, other)


def _integer_remainder(x: Value, divisor: Value) -> Value:
    known = cai.known_number(divisor)
    safe = known is not None and known not in (0, -1)
    return cai.modulo(x, divisor if safe else _safe_divisor(divisor))


_MODULI = [
    case(_DIVIDENDS, _DIVISORS),
    case(_FLOATS, _FLOAT_DIVISORS),
    case(f16(2, 3), f16(3, low=0.5)),
    case(bf16(4), bf16(4, low=0.5)),
    case(u8(4), u8(4, low=1)),
    case(i64(4), f32(4)),
]
_SCALAR_MODULI = [case(i64(6), 4), case(i32(6), -4), case(f32(6), 0.7), case(f16(6), -0.7)]


@lowers(
    aten.remainder.Scalar_Tensor,
    promote=Promote.COMMON,
    cases=[case(7, i32(4, values=(2, -2, 5, -5))), case(-7.5, f32(4))],
)
@lowers(aten.remainder.Scalar, promote=Promote.COMMON, cases=_SCALAR_MODULI)
@lowers(aten.remainder.Tensor, promote=Promote.COMMON, cases=_MODULI)
def remainder(ctx: Ctx, x: Value, other: Value) -> Value:
    """Python's `%`: the result has the divisor's sign."""
    if cai.is_float(x):
        modulo = cai.modulo(x, other)
    else:
        modulo = _integer_remainder(x, other)
        if not cai.dtype(x).is_signed:
            return modulo
    wrong_sign = cai.logical_and(
        cai.not_equal(modulo, cai.like(x, 0)), _signs_differ(modulo, other)
    )
    return cai.where(wrong_sign, cai.add(modulo, other), modulo)


@lowers(aten.fmod.Scalar, promote=Promote.COMMON, cases=_SCALAR_MODULI)
@lowers(aten.fmod.Tensor, promote=Promote.COMMON, cases=_MODULI)
def fmod(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.modulo(x, other) if cai.is_float(x) else _integer_remainder(x, other)


def _integer_power(x: Value, exponent: Value) -> Value:
    """Return the power of integers.

    With a negative exponent only 1 and -1 have an integer power.
    """
    zero, one = cai.like(x, 0), cai.like(x, 1)
    power = cai.pow_(x, cai.maximum(exponent, zero))
    if not cai.dtype(x).is_signed or cai.known_number(exponent) is not None:
        return power  # torch raises for a constant negative exponent
    odd = cai.equal(cai.bitwise_and(exponent, one), one)
    minus_one = cai.where(odd, cai.like(x, -1), one)
    inverse = cai.where(cai.equal(x, one), one, zero)
    inverse = cai.where(cai.equal(x, cai.like(x, -1)), minus_one, inverse)
    return cai.where(cai.less(exponent, zero), inverse, power)


def _power(x: Value, exponent: Value) -> Value:
    known = cai.known_number(exponent)
    if known == 1:
        return x
    if known == 2:
        return cai.mul(x, x)
    if known == 3:
        return cai.mul(cai.mul(x, x), x)
    if cai.is_integer(x):
        return _integer_power(x, exponent)
    if known == 0.5:  # torch also uses sqrt: (-inf) ** 0.5 is NaN, not inf
        return cai.sqrt(x)
    if known == -0.5:
        return cai.rsqrt(x)
    return cai.div(cai.like(x, 1), x) if known == -1 else cai.pow_(x, exponent)


_ROUND_ZERO = c64(5, values=(0j, -8 + 0j, 1 + 2j, -3j, complex(-0.001, -0.0)))
_BASES = f32(8, values=(_INF, -_INF, 0.0, -0.0, -4.0, 4.0, _NAN, 0.3))


@lowers(
    aten.pow.Scalar,
    promote=Promote.WIDE,
    cases=[
        case(2, f32(4)),
        case(2, i64(4, low=0)),
        case(-3.5, f32(3, values=(2.0, -1.0, 0.5))),
        case(10.3, f16(4)),
        case(1, i32(3)),
    ],
)
@lowers(
    aten.pow.Tensor_Scalar,
    promote=Promote.WIDE,
    cases=[
        *(case(_BASES, e) for e in (2, 3, 1, 0, -1, -2, 0.5, -0.5, 1.7, _INF, _NAN)),
        case(i32(5), 2),
        case(i32(5), 5),
        case(i32(5, low=1), 0.5),
        case(f16(5, low=0.1), 7.3),
        case(u8(4), 3),
        case(b1(4), 2),
        *(case(_ROUND_ZERO, e) for e in (0, 1, 2, 3, -1, -2, 0.5, 1.5, 1 + 2j)),
    ],
)
@lowers(
    aten.pow.Tensor_Tensor,
    promote=Promote.WIDE,
    cases=[
        case(_BASES, f32(6, 1, values=(2.0, -1.0, 0.0, 0.5, _NAN, -_INF))),
        case(i32(5, values=(0, 1, -1, 2, -3)), i32(7, 1, values=(0, 1, 2, 3, -1, -2, 5))),
        case(i32(3, values=(3, 46341, -7)), i32(3, values=(19, 2, 11))),
        case(f16(3, low=0.1), f16(3)),
        case(bf16(3, low=0.1), bf16(3)),
        case(i64(3, low=1), f32(3)),
        case(c64(3), c64(1)),
        case(c64(3, constant=True), f32(3)),
        case(_ROUND_ZERO, c64(3, 1, values=(2 + 0j, -1.5 + 1j, 0.5 + 0j))),
        case(f32(low=0.5), f32(3)),
    ],
)
def pow_(ctx: Ctx, x: Value, exponent: Value) -> Value:
    if cai.is_complex(x):
        given = ctx.fake("exponent")
        return power(x, exponent, None if isinstance(given, torch.Tensor) else given)
    return _power(x, exponent)
