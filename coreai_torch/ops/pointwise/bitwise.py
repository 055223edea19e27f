"""Lower bitwise and, or, xor, not and shifts, in integer arithmetic only."""

from __future__ import annotations

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, lowers
from ...lowering.cases import b1, i8, i32, i64, u8
from ...torch_compat import aten

_WIDE = (2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31), 0, -1, 5)

_BITWISE = [
    case(i32(7, values=_WIDE), i32(7, 1, values=_WIDE)),
    case(i64(2, 3), i64(3)),
    case(i8(4), i32(4)),
    case(u8(4), u8(4)),
    case(b1(4), b1(4, 1)),
    case(b1(4), i32(4)),
    case(i32(), i32(3)),
]
_WITH_NUMBERS = [case(i32(7, values=_WIDE), 0xFF), case(i64(4), -3), case(b1(4), True)]
_NUMBER_FIRST = [case(0xFF, i32(7, values=_WIDE)), case(-3, i64(4)), case(True, b1(4))]


@lowers(aten.bitwise_and.Scalar_Tensor, promote=Promote.COMMON, cases=_NUMBER_FIRST)
@lowers(aten.bitwise_and.Scalar, promote=Promote.COMMON, cases=_WITH_NUMBERS)
@lowers(aten.bitwise_and.Tensor, promote=Promote.COMMON, cases=_BITWISE)
def bitwise_and(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.bitwise_and(x, other)


@lowers(aten.bitwise_or.Scalar_Tensor, promote=Promote.COMMON, cases=_NUMBER_FIRST)
@lowers(aten.bitwise_or.Scalar, promote=Promote.COMMON, cases=_WITH_NUMBERS)
@lowers(aten.bitwise_or.Tensor, promote=Promote.COMMON, cases=_BITWISE)
def bitwise_or(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.bitwise_or(x, other)


@lowers(aten.bitwise_xor.Scalar_Tensor, promote=Promote.COMMON, cases=_NUMBER_FIRST)
@lowers(aten.bitwise_xor.Scalar, promote=Promote.COMMON, cases=_WITH_NUMBERS)
@lowers(aten.bitwise_xor.Tensor, promote=Promote.COMMON, cases=_BITWISE)
def bitwise_xor(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.bitwise_xor(x, other)


@lowers(
    aten.bitwise_not.default,
    cases=[case(i32(7, values=_WIDE)), case(i64(4)), case(i8(4)), case(u8(4)), case(b1(4))],
)
def bitwise_not(ctx: Ctx, x: Value) -> Value:
    if cai.is_bool(x):
        return cai.logical_not(x)
    info = torch.iinfo(cai.dtype(x))
    return cai.bitwise_xor(x, cai.like(x, -1 if info.min else info.max))


# In range, at the bit width, beyond it, and negative: torch defines all of them.
_COUNTS = (0, 1, 5, 30, 31, 32, 40, -1)
_SHIFTED = [
    case(i32(7, values=_WIDE), i32(8, 1, values=_COUNTS)),
    case(i8(5, values=(1, -1, 127, -128, 5)), i8(7, 1, values=(0, 1, 6, 7, 8, 9, -1))),
    case(u8(4, values=(1, 255, 128, 5)), u8(6, 1, values=(0, 1, 7, 8, 9, 200))),
    case(i64(2, 3), i64(3, low=0, high=8)),
]
_SHIFTED_BY_NUMBERS = [
    case(i32(7, values=_WIDE), 3),
    case(i64(4), 0),
    case(i32(4), 31),
    case(i32(4), 33),
    case(i8(4), 7),
    case(u8(4), 1),
]
_NUMBERS_SHIFTED = [case(5, i32(4, low=0)), case(-5, i64(4, low=0))]


def _powers_of_two(count: Value, last: int) -> Value:
    """Return `2 ** count`, with `count` clamped to 0..last."""
    known = cai.known_number(count)
    if known is not None:
        power = 2 ** min(max(int(known), 0), last)
        fits = power <= torch.iinfo(cai.dtype(count)).max
        return cai.like(count, power if fits else -power)  # the sign bit alone
    clamped = cai.minimum(cai.maximum(count, cai.like(count, 0)), cai.like(count, last))
    return cai.pow_(cai.like(count, 2), clamped)


def _is_in_range(count: Value, last: int) -> bool:
    known = cai.known_number(count)
    return known is not None and 0 <= known <= last


def _select_in_range(count: Value, last: int, shifted: Value, otherwise: Value) -> Value:
    """Return `shifted` where `0 <= count <= last`, else `otherwise`."""
    if _is_in_range(count, last):
        return shifted
    below = cai.less(count, cai.like(count, 0))
    beyond = cai.logical_or(below, cai.greater(count, cai.like(count, last)))
    return cai.where(beyond, otherwise, shifted)


@lowers(aten.bitwise_left_shift.Scalar_Tensor, promote=Promote.COMMON, cases=_NUMBERS_SHIFTED)
@lowers(
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.__lshift__.Scalar,
    promote=Promote.COMMON,
    cases=_SHIFTED_BY_NUMBERS,
)
@lowers(
    aten.bitwise_left_shift.Tensor,
    aten.__lshift__.Tensor,
    promote=Promote.COMMON,
    cases=_SHIFTED,
)
def left_shift(ctx: Ctx, x: Value, other: Value) -> Value:
    last = torch.iinfo(cai.dtype(x)).bits - 1
    shifted = cai.mul(x, _powers_of_two(other, last))
    return _select_in_range(other, last, shifted, cai.like(x, 0))


@lowers(aten.bitwise_right_shift.Scalar_Tensor, promote=Promote.COMMON, cases=_NUMBERS_SHIFTED)
@lowers(
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.__rshift__.Scalar,
    promote=Promote.COMMON,
    cases=_SHIFTED_BY_NUMBERS,
)
@lowers(
    aten.bitwise_right_shift.Tensor,
    aten.__rshift__.Tensor,
    promote=Promote.COMMON,
    cases=_SHIFTED,
)
def right_shift(ctx: Ctx, x: Value, other: Value) -> Value:
    """Shift right arithmetically; a shift by the bit width or more leaves the sign (0 or -1)."""
    info = torch.iinfo(cai.dtype(x))
    last = info.bits - (2 if info.min else 1)
    shifted = cai.floor_divide(x, _powers_of_two(other, last))
    if _is_in_range(other, last):
        return shifted
    zero = cai.like(x, 0)
    sign = cai.where(cai.less(x, zero), cai.like(x, -1), zero) if info.min else zero
    return _select_in_range(other, last, shifted, sign)
