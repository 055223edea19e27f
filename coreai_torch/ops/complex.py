"""Complex numbers made of two real ones."""

from __future__ import annotations

import torch

from ..ir import dialect as cai
from ..ir.dialect import Value
from ..lowering import Ctx, case, decomposes, lowers
from ..lowering.cases import f32

aten = torch.ops.aten


@lowers(
    aten.complex.default,
    cases=[case(f32(2, 3), f32(2, 3)), case(f32(2, 3), f32(3)), case(f32(), f32())],
)
def complex_(ctx: Ctx, real: Value, imag: Value) -> Value:
    lead = ctx.out.rank
    sizes = [
        b if isinstance(a, int) and a == 1 else a
        for a, b in zip(_aligned(real, lead), _aligned(imag, lead), strict=True)
    ]
    dims = ctx.dims(sizes)
    return cai.create_complex(cai.broadcast_to(real, dims), cai.broadcast_to(imag, dims))


def _aligned(x: Value, rank: int) -> list[cai.Dim]:
    return [*([1] * (rank - x.type.rank)), *cai.sizes(x)]


@decomposes(aten.polar.default, cases=[case(f32(2, 3), f32(2, 3)), case(f32(2, 3), f32(3))])
def polar(length: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return torch.complex(length * angle.cos(), length * angle.sin())
