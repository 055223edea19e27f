"""Signs: what they are, where they come from, and the number next to a number."""

from __future__ import annotations

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, decomposes, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten

_INF, _NAN = float("inf"), float("nan")
_EDGES = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, 3e38, -1e-40, 0.3)
_SIGNED = [case(f32(9, values=_EDGES)), case(f16(4)), case(i32(4)), case(i64(4)), case(f32())]


def is_negative(x: Value) -> Value:
    """Whether the sign bit is set: -0.0 is no less than 0, but its inverse is.

    A NaN counts as positive; the dialect cannot look at its bits.
    """
    zero = cai.like(x, 0)
    below = cai.less(x, zero)
    if not cai.is_float(x):
        return below
    return cai.logical_or(below, cai.less(cai.div(cai.like(x, 1), x), zero))


def with_sign_of(x: Value, sign: Value) -> Value:
    """The magnitude of `x` under the sign of `sign`."""
    size = cai.abs_(x)
    return cai.where(is_negative(sign), cai.neg(size), size)


@lowers(
    aten.signbit.default,
    cases=[case(f32(9, values=_EDGES)), case(f16(3)), case(i32(4)), case(u8(3)), case(b1(3))],
)
def signbit(ctx: Ctx, x: Value) -> Value:
    if cai.dtype(x).is_signed:
        return is_negative(x)
    return cai.not_equal(x, x)  # no unsigned number, no boolean is negative


@lowers(
    aten.sign.default,
    cases=[*_SIGNED, case(f32(2, values=(_NAN, 2.0))), case(u8(3)), case(b1(3)), case(i8(3))],
)
def sign(ctx: Ctx, x: Value) -> Value:
    """0 for NaN, as torch has it."""
    if cai.is_bool(x):
        return x
    zero = cai.like(x, 0)
    above = cai.cast(cai.greater(x, zero), cai.dtype(x))
    if not cai.dtype(x).is_signed:
        return above
    return cai.sub(above, cai.cast(cai.less(x, zero), cai.dtype(x)))


@lowers(
    aten.copysign.Scalar,
    promote=Promote.RESULT,
    cases=[case(f32(9, values=_EDGES), -0.0), case(f32(4), 2), case(i32(4), -1.0)],
)
@lowers(
    aten.copysign.Tensor,
    promote=Promote.RESULT,
    cases=[
        case(f32(9, values=_EDGES), f32(9, 1, values=_EDGES)),
        case(f16(3), f16(3)),
        case(i32(4), i32(4)),
        case(f32(), f32(3)),
    ],
)
def copysign(ctx: Ctx, x: Value, other: Value) -> Value:
    return with_sign_of(x, other)


@lowers(
    aten.neg.default,
    cases=[
        *_SIGNED,
        case(i32(2, values=(-(2**31), 2**24 + 1))),
        case(u8(3)),
        case(c64(3, values=(1 + 2j, complex(_INF, 1), -1j))),
    ],
)
def neg(ctx: Ctx, x: Value) -> Value:
    return cai.neg(x)


@lowers(
    aten.heaviside.default,
    promote=Promote.COMMON,
    cases=[
        case(f32(10, values=(*_EDGES, _NAN)), f32(1, values=(0.5,))),
        case(i32(4, low=-1, high=1), i32(4)),
        case(b1(3), b1(3)),
        case(f16(3, values=(0.0, -1.0, 1.0)), f16(3)),
    ],
)
def heaviside(ctx: Ctx, x: Value, values: Value) -> Value:
    if cai.is_bool(x):
        return cai.logical_or(x, values)
    zero = cai.like(x, 0)
    step = cai.cast(cai.greater(x, zero), cai.dtype(x))
    return cai.where(cai.equal(x, zero), values, step)


_NEIGHBOURS = (0.0, -0.0, 1.0, -1.0, 1.5, 2.0, _INF, -_INF, _NAN, 1e-45, 1.1754944e-38, 1e-34)
_LARGEST = 3.4028235e38


@decomposes(
    aten.nextafter.default,
    cases=[
        case(
            f32(14, values=(*_NEIGHBOURS, _LARGEST, -1e-38)),
            f32(13, 1, values=(*_NEIGHBOURS, -_LARGEST)),
            tolerance=(0.0, 0.0),
            because="the neighbour of a number is that number within any other tolerance",
        ),
        case(
            bf16(14, values=(*_NEIGHBOURS, 3e38, -1e-38)),
            bf16(12, 1, values=_NEIGHBOURS),
            tolerance=(0.0, 0.0),
            because="the neighbour of a number is that number within any other tolerance",
        ),
    ],
)
def nextafter(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Rump, Zimmermann, Boldo, Melquiond: half a unit and a little more, rounded, is the next."""
    dtype = torch.result_type(x, other)
    dtype = torch.float32 if dtype == torch.float64 else dtype
    info = torch.finfo(dtype)
    half, least = info.eps / 2, info.smallest_normal * info.eps
    x, other = x.to(torch.float32), other.to(torch.float32)
    up = torch.where(other > x, 1.0, -1.0)
    size, step = x.abs(), half * (1 + 2 * half)
    plain = x + up * (step * size)
    scaled = (x / half + up * (step * (size / half))) * half  # its step would be subnormal
    near_zero = x + up * least
    moved = torch.where(size >= least / (2 * half * half), plain, scaled)
    moved = torch.where(size < least / half, near_zero, moved)
    moved = torch.where(torch.isinf(x), torch.where(x > 0, info.max, info.min), moved)
    return torch.where((x == other) | torch.isnan(other), other, moved).to(dtype)


_FREXP = (0.0, -0.0, 1.0, -1.0, 0.75, 8.0, 1e-40, 1e-45, _LARGEST, _INF, -_INF, _NAN, 1e-38, 0.1)


@decomposes(
    aten.frexp.Tensor,
    cases=[
        case(f32(14, values=_FREXP)),
        case(f32(40, low=-9e4, high=9e4)),
        case(f16(14, values=_FREXP)),
        case(bf16(9)),
        case(f32()),
    ],
)
def frexp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A mantissa from 0.5 to 1 and a power of two, whose guess is mended where it is off by one."""
    wide = x.to(torch.float32)
    size = wide.abs()
    is_tiny = size < 2.0**-100
    size = torch.where(is_tiny, size * 2.0**100, size)  # no power of two to meet is subnormal
    guess = torch.floor(torch.log2(size)).clamp(-100, 127)
    fraction = size * torch.exp2(-guess)
    guess = torch.where(fraction >= 2, guess + 1, torch.where(fraction < 1, guess - 1, guess))
    fraction = size * torch.exp2(-guess) * 0.5
    plain = (wide == 0) | ~torch.isfinite(wide)
    mantissa = torch.where(plain, wide, torch.where(wide < 0, -fraction, fraction))
    exponent = torch.where(plain, 0, guess + 1 - torch.where(is_tiny, 100, 0))
    return mantissa.to(x.dtype), exponent.to(torch.int32)
