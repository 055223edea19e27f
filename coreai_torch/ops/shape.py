"""Views, permutations, and tensors joined, split and repeated."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..ir import dialect as cai
from ..ir.dialect import Value
from ..lowering import Axes, Axis, Ctx, Shape, case, lowers
from ..lowering.cases import b1, f32, i64

aten = torch.ops.aten


@lowers(
    aten.view.default,
    aten._unsafe_view.default,
    cases=[
        case(f32(2, 6), [3, 4], static_only="the sizes are numbers of the case"),
        case(f32(2, 3), [-1]),
        case(f32(), [1, 1]),
        case(b1(4), [2, 2], static_only="the sizes are numbers of the case"),
    ],
)
def view(ctx: Ctx, x: Value, size: Shape) -> Value:
    return cai.reshape(x, ctx.dims(size))


@lowers(
    aten.permute.default,
    cases=[case(f32(2, 3, 4), [2, 0, 1]), case(f32(2, 3), [-1, 0]), case(f32(), [])],
)
def permute(ctx: Ctx, x: Value, dims: Sequence[int]) -> Value:
    return cai.transpose(x, [d % max(len(dims), 1) for d in dims])


@lowers(aten.unsqueeze.default, cases=[case(f32(2, 3), 0), case(f32(2, 3), -1), case(f32(), 0)])
def unsqueeze(ctx: Ctx, x: Value, dim: int) -> Value:
    return cai.expand_dims(x, [dim % (x.type.rank + 1)])


@lowers(aten.squeeze.dims, cases=[case(f32(1, 2, 1), [0, -1]), case(f32(2, 1), [0])])
@lowers(
    aten.squeeze.dim,
    cases=[case(f32(2, 1, 3), 1), case(f32(2, 3), 1), case(f32(1, 2), -2), case(f32(), 0)],
)
def squeeze(ctx: Ctx, x: Value, dim: Axes) -> Value:
    return cai.shrink_dims(x, [d for d in dim if x.type.shape[d] == 1])


@lowers(
    aten.expand.default,
    ignore=("implicit",),
    cases=[
        case(f32(2, 1), [2, 3]),
        case(f32(3), [2, -1], implicit=True),
        case(f32(), [2, 2]),
        case(i64(1, 2), [4, 2]),
    ],
)
def expand(ctx: Ctx, x: Value, size: Shape) -> Value:
    lead = len(size) - x.type.rank
    kept = [cai.size(x, i - lead) if d == -1 else d for i, d in enumerate(ctx.dims(size))]
    return cai.broadcast_to(x, kept)


@lowers(
    aten.cat.default,
    cases=[
        case([f32(2, 3), f32(2, 1)], 1),
        case([f32(2, 3), f32(4, 3)]),
        case([f32(2), f32(0), f32(3)], static_only="an empty operand"),
        case([i64(2), f32(3)], -1),
        case([b1(2), b1(2)]),
    ],
)
def cat(ctx: Ctx, tensors: Sequence[Value], dim: Axis) -> Value:
    filled = [t for t in tensors if 0 not in t.type.shape]
    return cai.concat(dim, [cai.cast(t, ctx.out_dtype) for t in filled])
