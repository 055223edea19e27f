"""Lower floor, ceil, trunc and round, exact for every float.

All use coreai.round (coreai-core 1.0.0b3): `x // 1` turns infinity into NaN and is folded away by
the compiler, which also cancels a cast to integer and back.
"""

from __future__ import annotations

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, lowers
from ...lowering.cases import bf16, f16, f32, i32
from ...torch_compat import aten

_EDGES = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 1e9, -3.7, float("inf"), float("nan"))


def floor(x: Value) -> Value:
    """Return the largest integer <= x, as a float."""
    rounded = cai.round_(x)
    # `where` takes 10 ns for each element, the cast 2 ns (coreai-core 1.0.0b3, x86).
    return cai.sub(rounded, cai.raw_cast(cai.greater(rounded, x), cai.dtype(x)))


def ceil(x: Value) -> Value:
    """Return the smallest integer >= x, as a float; -0.5 gives -0.0, as in torch."""
    return cai.neg(floor(cai.neg(x)))


_CASES = [case(f32(12, values=_EDGES)), case(f16(5)), case(i32(4)), case(f32())]


@lowers(aten.floor.default, cases=_CASES)
def _floor(ctx: Ctx, x: Value) -> Value:
    return floor(x) if cai.is_float(x) else x


@lowers(aten.ceil.default, cases=_CASES)
def _ceil(ctx: Ctx, x: Value) -> Value:
    return ceil(x) if cai.is_float(x) else x


@lowers(aten.trunc.default, cases=_CASES)
def _trunc(ctx: Ctx, x: Value) -> Value:
    return cai.trunc(x) if cai.is_float(x) else x


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
