"""Lower floor, ceil, trunc, round and frac, exact for every finite float.

Guard of the fourth kind: they divide by -1, as the GPU folds a floor division by 1 away.
"""

from __future__ import annotations

from ...ir import dialect as cai
from ...ir.build import Build
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, lowers
from ...lowering.cases import bf16, f16, f32, i32
from ...torch_compat import aten

_EDGES = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 1e9, -3.7, 1e-45, -1e-45)
_INFINITE = f32(4, values=(float("inf"), -float("inf"), float("nan"), -0.5))


def floor(x: Value) -> Value:
    """Return the largest integer <= x, as a float."""
    return cai.floor_divide(cai.neg(x), cai.like(x, -1))


def ceil(x: Value) -> Value:
    """Return the smallest integer >= x, as a float; -0.5 gives -0.0, as in torch."""
    return cai.neg(cai.floor_divide(x, cai.like(x, -1)))


def or_itself(x: Value, rounded: Value) -> Value:
    """Return the result, and with `exact` an infinite `x` itself, whose quotient is NaN."""
    if not Build.current().exact:
        return rounded
    return cai.where(cai.equal(rounded, rounded), rounded, x)


_CASES = [case(f32(12, values=_EDGES)), case(f16(5)), case(bf16(5)), case(i32(4)), case(f32())]
_CASES = [*_CASES, case(_INFINITE, exact=True)]


@lowers(aten.floor.default, cases=_CASES)
def _floor(ctx: Ctx, x: Value) -> Value:
    """Without `exact`, an infinity becomes NaN."""
    return or_itself(x, floor(x)) if cai.is_float(x) else x


@lowers(aten.ceil.default, cases=_CASES)
def _ceil(ctx: Ctx, x: Value) -> Value:
    """Without `exact`, an infinity becomes NaN."""
    return or_itself(x, ceil(x)) if cai.is_float(x) else x


@lowers(aten.trunc.default, cases=_CASES)
def _trunc(ctx: Ctx, x: Value) -> Value:
    """Without `exact`, an infinity becomes NaN."""
    return or_itself(x, cai.trunc(x)) if cai.is_float(x) else x


@lowers(aten.round.default, cases=_CASES)
def _round(ctx: Ctx, x: Value) -> Value:
    return cai.round_(x) if cai.is_float(x) else x


@lowers(
    aten.round.decimals,
    promote=Promote.WIDE,
    cases=[
        case(f32(12, values=_EDGES), decimals=2),
        case(f32(9, low=-900, high=900), decimals=-1),
        case(f16(30), decimals=1),
        case(f16(30), decimals=5),
        case(bf16(30), decimals=-2),
        case(f32(4), decimals=0),
    ],
)
def _round_decimals(ctx: Ctx, x: Value, decimals: int) -> Value:
    power = cai.like(x, 10.0 ** abs(decimals))
    if decimals == 0:
        return cai.round_(x)
    if decimals < 0:
        return cai.mul(cai.round_(cai.div(x, power)), power)
    return cai.div(cai.round_(cai.mul(x, power)), power)
