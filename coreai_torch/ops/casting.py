"""Dtype moves, copies and aliases: what changes the element type or nothing at all."""

from __future__ import annotations

import torch

from ..ir import dialect as cai
from ..ir.dialect import Value
from ..lowering import Ctx, case, lowers
from ..lowering.cases import b1, f16, f32, i32

aten = torch.ops.aten
_PLACEMENT = ("layout", "device", "pin_memory", "non_blocking", "memory_format")
_EDGES = (1.5, -1.5, -2.5, 0.3, 300.7, 1e9)


@lowers(
    aten._to_copy.default,
    ignore=("dtype", *_PLACEMENT),  # the dtype is in ctx.out; a program has one device
    cases=[
        case(f32(6, values=_EDGES), dtype=torch.int32),
        case(f32(6, values=_EDGES), dtype=torch.int64),
        case(f32(4, low=0, high=200), dtype=torch.uint8),
        case(i32(6, values=(300, -300, 127, 128, 2**31 - 1, -(2**31))), dtype=torch.int8),
        case(i32(4, values=(300, -1, 255, 256)), dtype=torch.uint8),
        case(f32(4, values=(0.3, 0.0, -0.0, float("nan"))), dtype=torch.bool),
        case(b1(2, 3), dtype=torch.float16),
        case(f32(3), dtype=torch.bfloat16),
        case(f32(3), dtype=torch.complex64),
        case(f16(3), device="cpu", memory_format=torch.contiguous_format, non_blocking=True),
    ],
)
def _to_copy(ctx: Ctx, x: Value) -> Value:
    return cai.cast(x, ctx.out_dtype)


@lowers(
    aten.clone.default,
    ignore=("memory_format",),
    cases=[case(f32(2, 3)), case(f32(2, 3), memory_format=torch.contiguous_format)],
)
def clone(ctx: Ctx, x: Value) -> Value:
    return x


@lowers(
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    cases=[case(f32(2, 3))],
)
def alias(ctx: Ctx, x: Value) -> Value:
    return x


@lowers(
    aten.copy.default,
    ignore=("non_blocking",),
    cases=[case(f32(2, 3), f32(3)), case(i32(2), f32(2)), case(f32(2), f32(2), True)],
)
def copy(ctx: Ctx, x: Value, src: Value) -> Value:
    return cai.broadcast_to(cai.cast(src, cai.dtype(x)), cai.sizes(x))
