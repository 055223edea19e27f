"""Lower the Hurwitz zeta function and polygamma with Euler-Maclaurin summation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, decomposes, lowers
from ...lowering.cases import bf16, f16, f32, i32
from ...torch_compat import aten
from .._lib.approximation import polynomial
from ..pointwise.rounding import floor

_INF, _NAN = float("inf"), float("nan")
_WHOLE = -(2.0**24)  # float32 has no fractions below

# The denominators (2 k)! / B(2 k) of the Euler-Maclaurin correction.
_DENOMINATORS = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1892437580.3183791606, 7.47242496e10,
    -2.950130727918164224e12,
)  # fmt: skip
_TERMS = 9  # summed directly before the correction


def _increment(value: Value) -> Value:
    """Add one; to a constant here, for the compiler takes minutes to fold a chain of sums."""
    number = cai.known_number(value)
    if number is None or value.type.rank:
        return cai.add(value, cai.like(value, 1))
    return cai.like(value, float(torch.tensor(number, dtype=cai.dtype(value)) + 1))


def _power(a: Value, x: Value) -> Value:
    return cai.pow_(a, cai.neg(x))


def _sum_terms(x: Value, q: Value) -> tuple[Value, Value, Value]:
    """Sum terms until the correction is accurate; return the last argument, sum and last term.

    Nine terms suffice for positive `q`; a negative `q` is incremented up to nine in a loop.
    """
    nine = cai.like(q, 9)
    argument, total = q, _power(q, x)
    term = total
    for _ in range(_TERMS):
        argument = _increment(argument)
        term = _power(argument, x)
        total = cai.add(total, term)

    def below(state: Sequence[Value]) -> Value:
        return cai.logical_not(cai.greater(state[0], nine))

    def step(state: Sequence[Value]) -> list[Value]:
        argument, total, term, exponent = state
        active = below(state)
        argument = cai.where(active, _increment(argument), argument)
        term = cai.where(active, _power(argument, exponent), term)
        total = cai.where(active, cai.add(total, term), total)
        return [argument, total, term, exponent]

    argument, total = cai.broadcast(argument, total)
    _, exponent = cai.broadcast(total, x)
    state = graph.loop([argument, total, term, exponent], lambda s: cai.any_one(below(s)), step)
    return state[0], state[1], state[2]


def _zeta(x: Value, q: Value) -> Value:
    zero, one = cai.like(x, 0), cai.like(x, 1)
    not_positive = cai.logical_not(cai.greater(q, zero))
    # The floor of -inf is NaN, and the loop would not end from there: every number below is whole.
    whole = cai.logical_or(cai.equal(q, floor(q)), cai.less(q, cai.like(q, _WHOLE)))
    pole = cai.logical_and(not_positive, whole)
    # The loop would take long from a pole far below nine.
    skip = cai.logical_or(pole, cai.not_equal(q, q))
    number = cai.known_number(q)
    start = q if number is not None and number > 0 else cai.where(skip, one, q)
    argument, total, term = _sum_terms(x, start)
    half = cai.mul(term, cai.like(x, 0.5))
    total = cai.add(total, cai.sub(cai.div(cai.mul(term, argument), cai.sub(x, one)), half))
    factor, k = term, 0
    for denominator in _DENOMINATORS:
        factor = cai.div(cai.mul(factor, cai.add(x, cai.like(x, k))), argument)
        total = cai.add(total, cai.div(factor, cai.like(x, denominator)))
        factor = cai.div(cai.mul(factor, cai.add(x, cai.like(x, k + 1))), argument)
        k += 2
    nan, infinity = cai.like(x, _NAN), cai.like(x, _INF)
    undefined = cai.logical_and(not_positive, cai.not_equal(x, floor(x)))
    total = cai.where(cai.logical_or(undefined, cai.not_equal(q, q)), nan, total)
    total = cai.where(pole, infinity, total)
    total = cai.where(cai.less(x, one), nan, total)
    return cai.where(cai.equal(x, one), infinity, total)


@lowers(
    aten.special_zeta.self_scalar,
    promote=Promote.WIDE,
    cases=[case(3, f32(20, low=-9, high=9)), case(2.5, f32(9, low=0.1, high=90))],
)
@lowers(
    aten.special_zeta.other_scalar,
    promote=Promote.WIDE,
    cases=[case(f32(20, low=0.5, high=9), 0.7), case(f32(9, low=1.1, high=60), 12)],
)
@lowers(
    aten.special_zeta.default,
    promote=Promote.WIDE,
    cases=[
        case(
            f32(7, values=(1.0, 0.5, 2.0, 3.0, 2.5, 40.0, _NAN)),
            f32(9, 1, values=(0.5, 1.0, -1.0, -2.5, 0.0, 30.0, -_INF, _NAN, 1e-3)),
        ),
        case(f32(2, 30, low=1.1, high=8), f32(30, low=0.1, high=20)),
        case(i32(4, low=2, high=5), i32(4, low=1)),
        case(f32(low=2.0, high=3.0), f32(3, low=0.5)),
    ],
)
def zeta(ctx: Ctx, x: Value, other: Value) -> Value:
    return _zeta(x, other)


_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30)


def _trigamma(x: torch.Tensor) -> torch.Tensor:
    """Reflect arguments below 0.5, apply six recurrence steps, then the asymptotic series."""
    reflect = x < 0.5
    sine = torch.sin(math.pi * (x - torch.round(x)))
    high = torch.where(reflect, 1 - x, x)
    steps = torch.zeros_like(x)
    for _ in range(6):
        steps = steps + 1 / (high * high)
        high = high + 1
    inverse = 1 / (high * high)
    value = steps + (1 + 0.5 / high + inverse * polynomial(inverse, _TRIGAMMA)) / high
    return torch.where(reflect, (math.pi / sine) ** 2 - value, value)


@decomposes(
    aten.polygamma.default,
    cases=[
        case(0, f32(30, low=0.1, high=9)),
        case(1, f32(30, low=0.1, high=9)),
        # Near a pole torch's float32 sin(pi * x) is inexact: 9e-4 off at -0.9999; float64 agrees.
        case(1, f32(5, values=(-0.5, -1.3, -2.7, -4.4, -0.2))),
        case(2, f32(30, low=0.5, high=9)),
        case(3, f32(30, low=-4, high=9)),
        case(4, f32(5, values=(0.0, -1.0, 1.0, 20.0, _NAN))),
        case(2, f16(9, low=1.0)),
        case(1, bf16(9, low=1.0)),
        case(1, i32(4, low=1)),
    ],
)
def polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    if n == 0:
        return torch.digamma(x)
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    wide = x.to(torch.float32)
    if n == 1:
        return _trigamma(wide).to(dtype)
    factor = math.exp(math.lgamma(n + 1)) if n < 35 else _INF
    return (torch.special.zeta(n + 1, wide) * (factor if n % 2 else -factor)).to(dtype)
