"""Lower addcmul, addcdiv, lerp, ldexp, xlogy, logaddexp, logaddexp2, gcd and lcm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Value
from ...lowering import Ctx, Number, Promote, case, lowers
from ...lowering.cases import bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from . import complex as complex_functions
from .abs_atan2 import length
from .comparison import is_nan
from .complex import quotient

_INF, _NAN = float("inf"), float("nan")
_EDGES = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, _NAN, 0.3, -7.5)

_PRODUCTS = [
    case(f32(2, 3), f32(3), f32(2, 1)),
    case(f32(2, 3), f32(3), f32(2, 1, low=0.5), value=-2.5),
    case(f16(4, high=60), f16(4, high=60), f16(4, low=1.0), value=3.3),
    case(bf16(4), bf16(4), bf16(4, low=1.0)),
    case(f32(), f32(3), f32(3, low=0.5)),
]


def _add_scaled(x: Value, product: Value, value: Number) -> Value:
    is_one = not isinstance(value, Value) and value == 1
    return cai.add(x, product if is_one else cai.mul(product, cai.like(product, value)))


@lowers(
    aten.addcmul.default,
    promote=Promote.WIDE,
    cases=[*_PRODUCTS, case(i32(3), i32(3), i32(3), value=2), case(c64(3), c64(3), c64(3))],
)
def addcmul(ctx: Ctx, x: Value, tensor1: Value, tensor2: Value, value: Number) -> Value:
    return _add_scaled(x, cai.mul(tensor1, tensor2), value)


@lowers(aten.addcdiv.default, promote=Promote.WIDE, cases=_PRODUCTS)
def addcdiv(ctx: Ctx, x: Value, tensor1: Value, tensor2: Value, value: Number) -> Value:
    return _add_scaled(x, quotient(tensor1, tensor2), value)


@lowers(
    aten.lerp.Scalar,
    promote=Promote.COMMON,
    cases=[case(f32(4), f32(4), 0.3), case(f32(4), f32(4), 0.9), case(f16(4), f16(4), 1.7)],
)
@lowers(
    aten.lerp.Tensor,
    promote=Promote.COMMON,
    cases=[
        case(f32(4, high=1e6), f32(4), f32(3, 1, values=(0.0, 1.0, 0.7))),
        case(f16(4), f16(4), f16(4)),
        case(c64(4), c64(4), c64(4)),
        case(f32(), f32(), f32(3)),
    ],
)
def lerp(ctx: Ctx, x: Value, end: Value, weight: Value) -> Value:
    """Interpolate from the nearer end, so that a weight of 1 returns `end` exactly.

    Guard of the first kind: from 1e6 to 1e-3, `x + 1 * (end - x)` is 0.
    """
    span, one = cai.sub(end, x), cai.like(x, 1)
    if isinstance(known := ctx.fake("weight"), int | float):
        if abs(known) < 0.5:
            return cai.add(x, cai.mul(span, weight))
        return cai.sub(end, cai.mul(span, cai.like(x, 1 - known)))
    near_start = cai.less(length(weight), cai.like(length(weight), 0.5))
    from_start = cai.add(x, cai.mul(weight, span))
    from_end = cai.sub(end, cai.mul(span, cai.sub(one, weight)))
    return cai.where(near_start, from_start, from_end)


@lowers(
    aten.ldexp.Tensor,
    promote=Promote.WIDE,
    cases=[
        case(f32(4), i32(4)),
        case(f16(4), i64(4)),
        case(f32(3), f32(3)),
        case(i32(4), i32(4)),
    ],
)
def ldexp(ctx: Ctx, x: Value, other: Value) -> Value:
    return cai.mul(x, cai.pow_(cai.like(other, 2), other))


_XLOGY = [
    case(f32(9, values=_EDGES), f32(9, 1, values=_EDGES)),
    case(f16(4), f16(4, low=0.1)),
    case(i32(4), i32(4, low=0)),
]


def _multiply_log(x: Value, logarithm: Value, other: Value) -> Value:
    """Return `x * logarithm`, with 0 where `x` is 0 and NaN where `other` is NaN."""
    zero = cai.like(x, 0)
    product = cai.where(cai.equal(x, zero), zero, cai.mul(x, logarithm))
    return cai.where(is_nan(other), other, product)


@lowers(aten.xlogy.Scalar_Self, promote=Promote.WIDE, cases=[case(0, f32(9, values=_EDGES))])
@lowers(aten.xlogy.Scalar_Other, promote=Promote.WIDE, cases=[case(f32(9, values=_EDGES), 2.5)])
@lowers(aten.xlogy.Tensor, promote=Promote.WIDE, cases=_XLOGY)
def xlogy(ctx: Ctx, x: Value, other: Value) -> Value:
    return _multiply_log(x, cai.log(other), other)


_SUMS = [
    case(f32(9, values=_EDGES), f32(9, 1, values=_EDGES)),
    case(f32(3, values=(100.0, -100.0, 0.0)), f32(3, values=(100.5, -100.0, 1e-6))),
    case(f16(4, high=60), f16(4, high=60)),
    case(bf16(4), bf16(4)),
    case(f32(), f32(3)),
]


def _minus_distance(x: Value, y: Value) -> Value:
    """Return `-abs(x - y)`; two equal infinities, as in scores, are apart by 0."""
    distance = cai.where(cai.equal(x, y), cai.like(x, 0), cai.sub(x, y))
    return cai.neg(cai.abs_(distance))


def _log_of_sum(x: Value, y: Value, smaller: Value, base: float = math.e) -> Value:
    """Add the share of the smaller operand, which is `smaller` times the larger, to the larger."""
    share = cai.log(cai.add(smaller, cai.like(x, 1)))
    if base != math.e:
        share = cai.mul(share, cai.like(x, 1 / math.log(base)))
    return cai.add(cai.maximum(x, y), share)


@lowers(
    aten.logaddexp.default,
    promote=Promote.COMMON,
    cases=[*_SUMS, case(c64(4), c64(4, 1)), case(c64(1, values=(complex(-_INF, 0),)), c64(3))],
)
def logaddexp(ctx: Ctx, x: Value, other: Value) -> Value:
    if cai.is_complex(x):
        return complex_functions.logaddexp(x, other)
    return _log_of_sum(x, other, cai.exp(_minus_distance(x, other)))


@lowers(aten.logaddexp2.default, promote=Promote.COMMON, cases=_SUMS)
def logaddexp2(ctx: Ctx, x: Value, other: Value) -> Value:
    return _log_of_sum(x, other, cai.pow_(cai.like(x, 2), _minus_distance(x, other)), 2)


def _greatest_divisor(x: Value, y: Value) -> Value:
    """Run Euclid's algorithm on all pairs at once, until every remainder is 0."""
    one, zero = cai.like(x, 1), cai.like(x, 0)
    x, y = (v if not cai.dtype(v).is_signed else cai.abs_(v) for v in (x, y))
    pairs = cai.broadcast(x, y)

    def has_remainder(pair: Sequence[Value]) -> Value:
        return cai.any_one(cai.not_equal(pair[1], zero))

    def step(pair: Sequence[Value]) -> list[Value]:
        greater, remainder = pair
        done = cai.equal(remainder, zero)
        modulus = cai.where(done, one, remainder)  # modulo 0 crashes the runtime (1.0.0b3)
        next_remainder = cai.where(done, zero, cai.modulo(greater, modulus))
        return [cai.where(done, greater, remainder), next_remainder]

    return graph.loop(pairs, has_remainder, step)[0]


_DIVISIBLE = [
    case(i32(6, values=(12, -18, 0, 0, 7, 2**30)), i32(5, 1, values=(8, -12, 0, 5, 3 * 2**20))),
    case(i64(2, 3), i64(3)),
    case(u8(4), u8(4)),
    case(i8(4), i32(4)),
    case(i32(), i32()),
]


@lowers(aten.gcd.default, promote=Promote.COMMON, cases=_DIVISIBLE)
def gcd(ctx: Ctx, x: Value, other: Value) -> Value:
    return _greatest_divisor(x, other)


@lowers(
    aten.lcm.default,
    promote=Promote.COMMON,
    cases=[
        case(i32(5, values=(12, -18, 0, 0, 7)), i32(5, 1, values=(8, -12, 0, 5, 14))),
        case(i64(2, 3), i64(3)),
        case(u8(4), u8(4)),
    ],
)
def lcm(ctx: Ctx, x: Value, other: Value) -> Value:
    divisor = _greatest_divisor(x, other)
    divisor = cai.where(cai.equal(divisor, cai.like(x, 0)), cai.like(x, 1), divisor)
    multiple = cai.mul(cai.div(x, divisor), other)
    return cai.abs_(multiple) if cai.dtype(multiple).is_signed else multiple
