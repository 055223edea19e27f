"""Matrix products."""

from __future__ import annotations

import torch

from ..ir import dialect as cai
from ..ir.dialect import Value
from ..lowering import Ctx, Number, case, lowers
from ..lowering.cases import bf16, f32, i32

aten = torch.ops.aten


@lowers(
    aten.mm.default,
    cases=[case(f32(2, 3), f32(3, 4)), case(bf16(2, 3), bf16(3, 2)), case(i32(2, 3), i32(3, 2))],
)
def mm(ctx: Ctx, x: Value, mat2: Value) -> Value:
    return cai.matmul(x, mat2)


@lowers(
    aten.bmm.default, cases=[case(f32(2, 3, 4), f32(2, 4, 5)), case(f32(1, 3, 4), f32(1, 4, 1))]
)
def bmm(ctx: Ctx, x: Value, mat2: Value) -> Value:
    return cai.matmul(x, mat2)


@lowers(
    aten.addmm.default,
    cases=[
        case(f32(4), f32(2, 3), f32(3, 4)),
        case(f32(2, 4), f32(2, 3), f32(3, 4), beta=2, alpha=0.5),
        case(f32(2, 1), f32(2, 3), f32(3, 4), beta=0),
        case(i32(4), i32(2, 3), i32(3, 4), alpha=3),
    ],
)
def addmm(ctx: Ctx, x: Value, mat1: Value, mat2: Value, beta: Number, alpha: Number) -> Value:
    product = cai.matmul(mat1, mat2)
    if alpha != 1:
        product = cai.mul(product, cai.like(product, alpha))
    if beta == 0:  # torch promises that NaN in the input is then ignored
        return product
    return cai.add(product, x if beta == 1 else cai.mul(x, cai.like(x, beta)))
