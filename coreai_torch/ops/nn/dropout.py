"""Lower native_dropout where it does not draw."""

from __future__ import annotations

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, case, lowers
from ...lowering.cases import f16, f32
from ...torch_compat import aten


@lowers(
    aten.native_dropout.default,
    cases=[
        case(f32(3, 4), 0.5, False),
        case(f32(3, 4), 0.0, True),
        case(f16(), 0.0, None),
        case(f32(2, values=(-1.0, 2.0)), 1.0, True),
    ],
)
def native_dropout(ctx: Ctx, x: Value, p: float, train: bool | None) -> list[Value]:
    """It must not draw: `train` is False, or `p` is 0 or 1."""
    kept = train is False or p == 0
    if not kept and p != 1:
        ctx.refuse(
            "training mode drops elements at random",
            "call model.eval() before exporting, or pass random='input' or 'seed' to convert",
        )
    dims = cai.sizes(x)
    result = x if kept else cai.broadcast_to(cai.like(x, 0), dims)
    return [result, cai.broadcast_to(cai.constant(kept, torch.bool), dims)]
