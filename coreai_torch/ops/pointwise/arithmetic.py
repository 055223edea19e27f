"""Lower add, sub, mul, div, remainder, fmod and pow.

The engine promotes the operands before the call and casts the result to the node's dtype.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir.build import Build
from ...ir.dialect import Binary, Value
from ...lowering import Ctx, Number, Promote, case, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .complex import power, quotient
from .rounding import floor, or_itself

_INF, _NAN = float("inf"), float("nan")
_SHORT = 1 << 7  # the odd factor of a divisor is below
_LEAST = -(2**31) + 1  # torch itself crashes on -2**31 divided by -1

_ADDITIVE = [
    case(f32(2, 3), f32(3)),
    case(f32(4, 1), f32(1, 5)),
    case(f16(2, 3), 0.5),
    case(f16(8, values=(0.0, 1.0, -1e-4, 3e-6, -1e-6, 300.0, _INF, _NAN)), 1e-6),
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
        case(f32(4, values=(_INF, -0.0, _NAN, 1.0)), 1.0),
        case(i32(4), 1.0),
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
    if ctx.number("other") == 1 and not cai.is_bool(x):
        return x
    return cai.logical_and(x, other) if cai.is_bool(x) else cai.mul(x, other)


# Every combination of signs.
_DIVIDENDS = i32(6, values=(7, -7, 6, -6, _LEAST, 0))
_DIVISORS = i32(6, 1, values=(2, -2, 3, -1, 7, 2**31 - 1))
_FLOATS = f32(9, values=(7.3, -7.3, 1.0, -1.0, 0.0, _INF, -_INF, _NAN, 0.3))
_FLOAT_DIVISORS = f32(9, 1, values=(2.5, -2.5, 0.1, -0.1, _INF, -_INF, _NAN, 0.0, 1e-3))
_FINITE = f32(7, values=(7.3, -7.3, 1.0, -1.0, 0.0, 0.3, -9e5))
_FINITE_DIVISORS = f32(6, 1, values=(2.5, -2.5, 0.1, -0.1, 3e7, _NAN))
_TO_INFINITY = f32(7, 1, values=(2.5, -2.5, 0.1, -0.1, _INF, -_INF, _NAN))


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
    return x if ctx.number("other") == 1 else quotient(x, other)


def _quotient(op: Binary, x: Value, divisor: Value) -> Value:
    """Return an integer quotient; that by -1 may wrap around."""
    safe = _safe_divisor(divisor)
    quotient = op(x, safe)
    if safe is divisor or not cai.dtype(x).is_signed:
        return quotient
    return cai.where(cai.equal(divisor, cai.like(divisor, -1)), cai.neg(x), quotient)


def _safe_divisor(divisor: Value) -> Value:
    """Replace 0 and -1 by 1.

    Guard of the second kind: the runtime crashes on 1 // 0 and on -2**31 // -1 (coreai-core
    1.0.0b3).
    """
    known = cai.known_number(divisor)
    if known is not None and known not in (0, -1):
        return divisor
    unsafe = cai.equal(divisor, cai.like(divisor, 0))
    if cai.dtype(divisor).is_signed:
        unsafe = cai.logical_or(unsafe, cai.equal(divisor, cai.like(divisor, -1)))
    return cai.where(unsafe, cai.like(divisor, 1), divisor)


def _has_other_sign(remainder: Value, divisor: Value) -> Value:
    """Return whether a remainder with the sign of the dividend has another than the divisor.

    Guard of the first kind: the sign of a product is lost in float16 at -1e-5 and 1e-3.
    """
    zero, known = cai.like(remainder, 0), cai.known_number(divisor)
    if known is not None:
        return cai.less(remainder, zero) if known > 0 else cai.greater(remainder, zero)
    differ = cai.logical_xor(cai.less(remainder, zero), cai.less(divisor, zero))
    return cai.logical_and(cai.not_equal(remainder, zero), differ)


def _floor_divide(x: Value, y: Value) -> Value:
    """Return the float `x // y`.

    Guard of the first kind: 1.0 // 0.1 is 9.0, and the rounded quotient is 10.0. It is found from
    the exact remainder, unless the divisor has few bits.
    """
    if cai.known_number(y) == 1:
        return floor(x)
    if not Build.current().exact and _is_short(cai.known_number(y), cai.dtype(x)):
        return cai.floor_divide(x, y)
    remainder = cai.modulo(x, y)
    whole = cai.div(cai.sub(x, remainder), y)
    if not Build.current().exact:
        return cai.round_(_down(whole, remainder, y))
    quotient = cai.round_(cai.sub(whole, _step(remainder, y)))
    return cai.where(cai.equal(y, cai.like(y, 0)), cai.div(x, y), quotient)


def _down(whole: Value, remainder: Value, divisor: Value) -> Value:
    """Return a quotient less 1 if the remainder has another sign than the divisor.

    Guard of the first kind, in half precision, for -1e-5 and 300: their quotient is 0. In float32,
    quotients that are 0 need `exact`: by infinity, and below 1e-45.
    """
    if cai.dtype(remainder).itemsize > 2:
        return cai.add(whole, cai.floor_divide(remainder, divisor))
    return cai.sub(whole, _step(remainder, divisor))


def _step(remainder: Value, divisor: Value) -> Value:
    return cai.cast(_has_other_sign(remainder, divisor), cai.dtype(remainder))


def _is_short(divisor: float | None, dtype: torch.dtype) -> bool:
    """Return whether rounded quotients by this number are on the right side of an integer.

    A product `n * divisor` that is a float has a quotient far enough from those of its neighbours.
    Other products exceed 2**24: an error of 1 is then less than 1e-5 of the quotient.
    """
    if divisor is None or divisor == 0 or not math.isfinite(divisor):
        return False
    significant, _ = abs(divisor).as_integer_ratio()
    significant //= significant & -significant
    return significant < (_SHORT if dtype == torch.float32 else 2)


def _is_power_of_two(number: float) -> bool:
    return abs(math.frexp(number)[0]) == 0.5


_MODES = (None, "trunc", "floor")
_ROUNDED = [
    *(case(_DIVIDENDS, _DIVISORS, rounding_mode=mode) for mode in _MODES),
    *(case(_FINITE, _TO_INFINITY, rounding_mode=mode) for mode in _MODES[:2]),
    case(_FINITE, _FINITE_DIVISORS, rounding_mode="floor"),
    *(case(_FLOATS, _FLOAT_DIVISORS, rounding_mode=mode, exact=True) for mode in _MODES),
]


@lowers(
    aten.div.Scalar_mode,
    promote=Promote.WIDE,
    cases=[
        case(_DIVIDENDS, 2, rounding_mode="floor"),
        case(_DIVIDENDS, -1, rounding_mode="trunc"),
        *(case(f32(99, low=-1e3, high=1e3), n, rounding_mode="floor") for n in (2, -12, 0.25, 0.1)),
        case(f16(9), 0.3, rounding_mode="floor"),
        case(f16(99, low=-60, high=60), 2, rounding_mode="floor"),
        case(bf16(99, low=-60, high=60), -0.5, rounding_mode="trunc"),
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
    """Without `exact`, a float divided by zero and rounded is NaN, and -1 // infinity is 0."""
    # float16, bfloat16: torch computes in float32 only if the divisor is a number. The quotient by
    # a power of two is the same in both.
    number = cai.known_number(other)
    if number is None or _is_power_of_two(number):
        x = cai.cast(x, ctx.out_dtype)
        other = cai.cast(other, ctx.out_dtype) if number is None else cai.like(x, number)
    if rounding_mode is None:
        return quotient(x, other)
    if rounding_mode == "floor":
        return _floor_divide(x, other) if cai.is_float(x) else _quotient(cai.floor_divide, x, other)
    if not cai.is_float(x):
        return _quotient(cai.div, x, other)
    ratio = cai.div(x, other)
    return or_itself(ratio, cai.trunc(ratio))


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
        return cai.where(_has_other_sign(modulo, other), cai.add(modulo, other), modulo)
    other = _safe_divisor(other)
    if not cai.dtype(x).is_signed:
        return cai.modulo(x, other)
    return cai.sub(x, cai.mul(cai.floor_divide(x, other), other))


@lowers(aten.fmod.Scalar, promote=Promote.COMMON, cases=_SCALAR_MODULI)
@lowers(aten.fmod.Tensor, promote=Promote.COMMON, cases=_MODULI)
def fmod(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.modulo(x, other if cai.is_float(x) else _safe_divisor(other))


def _integer_power(x: Value, exponent: Value) -> Value:
    """Return the power of integers.

    With a negative exponent only 1 and -1 have an integer power.
    """
    known = cai.known_number(exponent)
    if known is not None and known > 0:  # torch raises for a constant negative exponent
        return _repeated_product(x, int(known))
    zero, one = cai.like(x, 0), cai.like(x, 1)
    power = cai.pow_(x, cai.maximum(exponent, zero))
    if not cai.dtype(x).is_signed:
        return power
    odd = cai.equal(cai.bitwise_and(exponent, one), one)
    minus_one = cai.where(odd, cai.like(x, -1), one)
    inverse = cai.where(cai.equal(x, one), one, zero)
    inverse = cai.where(cai.equal(x, cai.like(x, -1)), minus_one, inverse)
    return cai.where(cai.less(exponent, zero), inverse, power)


def _repeated_product(x: Value, exponent: int) -> Value:
    """Return the power of integers, which wrap, by squares."""
    if exponent == 1:
        return x
    half = _repeated_product(x, exponent // 2)
    square = cai.mul(half, half)
    return cai.mul(square, x) if exponent % 2 else square


def _power(x: Value, exponent: Value) -> Value:
    known = cai.known_number(exponent)
    if known == 1:
        return x
    if known == 2:
        return cai.mul(x, x)
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
    promote=Promote.RESULT,
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
    promote=Promote.RESULT,
    cases=[
        *(case(_BASES, e) for e in (2, 3, 1, 0, -1, -2, 0.5, -0.5, 1.7, _INF, _NAN)),
        case(i32(5), 2),
        case(i32(5), 5),
        case(i32(5, values=(0, 1, -1, 7, -9)), 12),
        case(i32(5), 0),
        case(i32(5, low=1), 0.5),
        case(f16(5, low=0.1), 7.3),
        case(f16(9, high=30), 3),
        case(f16(9, low=0.1, high=9), -0.75),
        case(bf16(9, low=0.1, high=9), 1.5),
        case(f16(9, low=0.1, high=9), -0.5),
        case(u8(4), 3),
        case(b1(4), 2),
        *(case(_ROUND_ZERO, e) for e in (0, 1, 2, 3, -1, -2, 0.5, 1.5, 1 + 2j)),
    ],
)
@lowers(
    aten.pow.Tensor_Tensor,
    promote=Promote.RESULT,
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
    base, power_of = (_exact(ctx.fake(n), v) for n, v in (("self", x), ("exponent", exponent)))
    if cai.dtype(base) != cai.dtype(power_of):
        base, power_of = cai.wide(base), cai.wide(power_of)
    return cai.cast(_power(base, power_of), ctx.out_dtype)


def _exact(given: Any, value: Value) -> Value:
    """Return an operand; a number that half precision rounds becomes a float32 value.

    The power is then computed in float32: with 7.3 rounded to 7.301, that of 60,000 is off by 1 %.
    """
    if not isinstance(given, float) or not math.isfinite(given) or cai.dtype(value).itemsize > 2:
        return value
    exact = torch.tensor(given, dtype=cai.dtype(value)).item() == given
    return value if exact else cai.constant(given, torch.float32)
