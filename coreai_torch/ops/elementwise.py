"""Two-operand arithmetic: operands arrive promoted, results leave in the node's dtype."""

from __future__ import annotations

import torch

from ..ir import dialect as cai
from ..ir.dialect import Value
from ..lowering import Ctx, Number, Promote, case, lowers
from ..lowering.cases import b1, bf16, c64, f16, f32, i32, i64

aten = torch.ops.aten

_ADDITIVE = [
    case(f32(2, 3), f32(3)),
    case(f32(4, 1), f32(1, 5)),
    case(f16(2, 3), 0.5),
    case(bf16(2, 3), bf16(2, 3)),
    case(i32(4), f32(4)),
    case(i64(4), 3),
    case(f32(), f32(3)),
    case(c64(3), c64(3)),
    case(f32(2, 3), f32(2, 3), alpha=3),
    case(i32(2, 3), i32(2, 3), alpha=-2),
]


def _scaled(x: Value, alpha: Number) -> Value:
    return x if not isinstance(alpha, Value) and alpha == 1 else cai.mul(x, cai.like(x, alpha))


_SCALAR = [case(f32(2, 3), 2.5), case(i64(4), 3), case(i32(3), 2, 4)]


@lowers(aten.add.Scalar, promote=Promote.COMMON, cases=_SCALAR)
@lowers(
    aten.add.Tensor,
    promote=Promote.COMMON,
    cases=[*_ADDITIVE, case(b1(4), b1(4)), case(b1(4), True)],
)
def add(ctx: Ctx, x: Value, other: Value, alpha: Number) -> Value:
    if cai.is_bool(x):
        return cai.logical_or(x, other) if alpha else x
    return cai.add(x, _scaled(other, alpha))


@lowers(aten.sub.Scalar, promote=Promote.COMMON, cases=_SCALAR)
@lowers(aten.sub.Tensor, promote=Promote.COMMON, cases=_ADDITIVE)
def sub(ctx: Ctx, x: Value, other: Value, alpha: Number) -> Value:
    return cai.sub(x, _scaled(other, alpha))


@lowers(aten.mul.Scalar, promote=Promote.COMMON, cases=[case(f32(2, 3), 2.5), case(i64(4), 3)])
@lowers(
    aten.mul.Tensor,
    promote=Promote.COMMON,
    cases=[
        case(f32(2, 3), f32(3)),
        case(f16(2, 3), 0.5),
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
