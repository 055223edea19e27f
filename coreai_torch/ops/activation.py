"""Activations: relu and its kin, gelu, the hard ones, softmax and log_softmax."""

from __future__ import annotations

import torch

from ..ir import dialect as cai
from ..ir.composite import Composite
from ..ir.dialect import Value
from ..lowering import Axis, Ctx, case, lowers
from ..lowering.cases import f16, f32

aten = torch.ops.aten


@lowers(
    aten._log_softmax.default,
    ignore=("half_to_float",),  # the dtype is in ctx.out
    cases=[case(f32(2, 5), -1, False), case(f32(2, 5), 0, False), case(f16(2, 3), 1, False)],
)
def _log_softmax(ctx: Ctx, x: Value, dim: Axis) -> Value:
    def log_softmax(input: Value) -> Value:
        shifted = cai.sub(input, cai.reduce_max(input, [dim]))
        return cai.sub(shifted, cai.log(cai.reduce_sum(cai.exp(shifted), [dim])))

    contract = Composite("log_softmax", inputs=("input",), attrs={"axis": int(dim)})
    (output,) = ctx.emit(contract, log_softmax, cai.cast(x, ctx.out_dtype))
    return output
