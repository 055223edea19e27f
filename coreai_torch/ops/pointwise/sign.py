"""Lower neg, sign, signbit, copysign, heaviside, nextafter and frexp."""

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
    """Return whether the sign bit is set; -0.0 is recognized by its reciprocal, -inf.

    A NaN counts as positive: the dialect has no bitcast to read its sign bit.
    """
    zero = cai.like(x, 0)
    below = cai.less(x, zero)
    if not cai.is_float(x):
        return below
    return cai.logical_or(below, cai.less(cai.div(cai.like(x, 1), x), zero))


def with_sign_of(x: Value, sign: Value) -> Value:
    """Return the magnitude of `x` with the sign of `sign`."""
    magnitude = cai.abs_(x)
    return cai.where(is_negative(sign), cai.neg(magnitude), magnitude)


@lowers(
    aten.signbit.default,
    cases=[case(f32(9, values=_EDGES)), case(f16(3)), case(i32(4)), case(u8(3)), case(b1(3))],
)
def signbit(ctx: Ctx, x: Value) -> Value:
    """Return whether the sign bit is set; false for NaN, whose sign bit no op can read."""
    if cai.dtype(x).is_signed:
        return is_negative(x)
    return cai.not_equal(x, x)  # unsigned integers and booleans are never negative


@lowers(
    aten.sign.default,
    cases=[*_SIGNED, case(f32(2, values=(_NAN, 2.0))), case(u8(3)), case(b1(3)), case(i8(3))],
)
def sign(ctx: Ctx, x: Value) -> Value:
    """Return the sign; 0 for NaN, as torch does."""
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
    """Return the first with the sign of the second; NaN counts as positive."""
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
            because="a number and its neighbour are equal within any other tolerance",
        ),
        case(
            bf16(14, values=(*_NEIGHBOURS, 3e38, -1e-38)),
            bf16(12, 1, values=_NEIGHBOURS),
            tolerance=(0.0, 0.0),
            because="a number and its neighbour are equal within any other tolerance",
        ),
    ],
)
def nextafter(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Add slightly more than half a unit in the last place, and round.

    Rump, Zimmermann, Boldo, Melquiond: "Computing predecessor and successor in rounding to
    nearest".
    """
    dtype = torch.result_type(x, other)
    dtype = torch.float32 if dtype == torch.float64 else dtype
    info = torch.finfo(dtype)
    half, least = info.eps / 2, info.smallest_normal * info.eps
    x, other = x.to(torch.float32), other.to(torch.float32)
    up = torch.where(other > x, 1.0, -1.0)
    magnitude, step = x.abs(), half * (1 + 2 * half)
    unchanged = x + up * (step * magnitude)
    # its unscaled step would be subnormal
    scaled = (x / half + up * (step * (magnitude / half))) * half
    near_zero = x + up * least
    moved = torch.where(magnitude >= least / (2 * half * half), unchanged, scaled)
    moved = torch.where(magnitude < least / half, near_zero, moved)
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
    """Return a mantissa in [0.5, 1) and an exponent; log2's guess is corrected if off by one."""
    wide = x.to(torch.float32)
    magnitude = wide.abs()
    is_tiny = magnitude < 2.0**-100
    magnitude = torch.where(is_tiny, magnitude * 2.0**100, magnitude)  # keeps exp2(-guess) normal
    guess = torch.floor(torch.log2(magnitude)).clamp(-100, 127)
    fraction = magnitude * torch.exp2(-guess)
    guess = torch.where(fraction >= 2, guess + 1, torch.where(fraction < 1, guess - 1, guess))
    fraction = magnitude * torch.exp2(-guess) * 0.5
    unchanged = (wide == 0) | ~torch.isfinite(wide)
    mantissa = torch.where(unchanged, wide, torch.where(wide < 0, -fraction, fraction))
    exponent = torch.where(unchanged, 0, guess + 1 - torch.where(is_tiny, 100, 0))
    return mantissa.to(x.dtype), exponent.to(torch.int32)
