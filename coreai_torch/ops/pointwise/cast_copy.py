"""Lower dtype casts, copies, aliases, conj and neg views."""

from __future__ import annotations

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, case, decomposes, lowers
from ...lowering.binding import ConstantOrValue
from ...lowering.cases import b1, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from ..quant.compressed_weights import ELEMENT
from ..quant.pt2e_torchao import widened

_PLACEMENT = ("layout", "device", "pin_memory", "non_blocking", "memory_format")
_EDGES = (1.5, -1.5, -2.5, 0.3, 300.7, 1e9)


@lowers(
    aten._to_copy.default,
    ignore=("dtype", *_PLACEMENT),  # ctx.out has the dtype; a program runs on one device
    cases=[
        case(f32(6, values=_EDGES), dtype=torch.int32),
        case(f32(6, values=_EDGES), dtype=torch.int64),
        case(f32(4, low=0, high=200), dtype=torch.uint8),
        case(i32(6, values=(300, -300, 127, 128, 2**31 - 1, -(2**31))), dtype=torch.int8),
        case(i32(4, values=(300, -1, 255, 256)), dtype=torch.uint8),
        case(f32(4, values=(0.3, 0.0, -0.0, float("nan"))), dtype=torch.bool),
        case(b1(2, 3), dtype=torch.float16),
        case(f32(3), dtype=torch.bfloat16),
        case(i64(3), dtype=torch.complex64),
        case(f32(3, values=(-1.0, float("inf"), float("nan"))), dtype=torch.complex64),
        case(c64(3, values=(0j, 1j, 2.0)), dtype=torch.bool),
        case(f16(4, values=(32736.0, -0.4, 7.9, -7.9)), dtype=torch.int16),
        case(u8(3), dtype=torch.int8),
        case(i8(3), dtype=torch.uint32),
        case(f32()),
        case(f16(3), device="cpu", memory_format=torch.contiguous_format, non_blocking=True),
    ],
)
def _to_copy(ctx: Ctx, x: ConstantOrValue) -> Value:
    if not isinstance(x, torch.Tensor):
        return cai.cast(x, ctx.out_dtype)
    # An unfolded constant is the weight of a quantized model, which stays compressed.
    # The runtime ends the process at a blockwise scale of float8_e8m0fnu (coreai-core 1.0.0b3).
    whole = x.dtype in (torch.bool, torch.float8_e8m0fnu)
    if x.element_size() == 1 and x.dim() and ctx.out_dtype in ELEMENT and not whole:
        return widened(x, ctx.path("self"), ctx.out_dtype)
    return cai.cast(cai.tensor_constant(x, ctx.path("self")), ctx.out_dtype)


@lowers(
    torch.ops.prims.convert_element_type.default,
    ignore=("dtype",),  # ctx.out has it
    cases=[case(f16(3), torch.float32), case(f32(6, values=_EDGES), torch.int64)],
)
def convert_element_type(ctx: Ctx, a: Value) -> Value:
    return cai.cast(a, ctx.out_dtype)


_NO_META = "torch exports it with static sizes only"


@decomposes(
    aten.dequantize.self,
    cases=[case(f32(3), static_only=_NO_META), case(f16(2, 3), static_only=_NO_META)],
)
def dequantize(x: torch.Tensor) -> torch.Tensor:
    """Cast a tensor that is not quantized."""
    return x.to(torch.float32)


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
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    cases=[case(f32(2, 3)), case(c64(3))],
)
def alias(ctx: Ctx, x: Value) -> Value:
    return x


@lowers(
    aten.copy.default,
    ignore=("non_blocking",),
    cases=[case(f32(2, 3), f32(3)), case(i32(2), f32(2)), case(f32(2), f32(2), True)],
)
def copy(ctx: Ctx, x: Value, src: Value) -> Value:
    cast = cai.cast(src, cai.dtype(x))
    own, given = ([str(size) for size in ctx.fake(name).shape] for name in ("self", "src"))
    if own == given and cast.type == x.type:
        return cast  # a broadcast to a dynamic size would copy all elements
    return cai.broadcast_to(cast, cai.sizes(x))


@lowers(aten._conj.default, aten._conj_physical.default, cases=[case(c64(2, 3)), case(c64())])
def conj(ctx: Ctx, x: Value) -> Value:
    return cai.create_complex(cai.real_part(x), cai.neg(cai.imaginary_part(x)))


@lowers(aten._neg_view.default, cases=[case(f32(3)), case(i32(3))])
def neg_view(ctx: Ctx, x: Value) -> Value:
    return cai.neg(x)
