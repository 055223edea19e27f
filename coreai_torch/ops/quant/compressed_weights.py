"""Weights that stay compressed: tables, blocks with scales, masks. Nothing is inflated here.

The ops decompress when the program runs. What is done with the result in torch (a transpose, a
cast, a view) stays an op behind them, because a value of the graph is never folded.
"""

from __future__ import annotations

from typing import Any

import torch

from ...compression import checks
from ...compression.packing import pack_intx, pack_uintx
from ...compression.scalars import FLOAT4, FLOAT8, SCALES_OF_TWO, Integers
from ...compression.subbyte import SubbyteTensor
from ...compression.torch_ops import unpack_bits as unpacked
from ...ir import compression as cmp
from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering.binding import Axis, Held
from ...lowering.cases import case, u8
from ...lowering.context import Ctx
from ...lowering.registry import lowers
from .compressed_weight_cases import BLOCKS, LUTS, SPARSE

coreai = torch.ops.coreai

# The widths that indices into a table may have, and those of integers that are scaled.
_INDEX_BITS = (1, 2, 3, 4, 6, 8)
_SCALED_BITS = (2, 4, 8)


def refuse_unless(ctx: Ctx, name: str, check: Any, *given: Any) -> None:
    """Turn what a check of the argument says into an error that names the tensor's path."""
    try:
        check(f"{name} {ctx.path(name)!r}", *given)
    except ValueError as wrong:
        ctx.refuse(str(wrong), f"a model whose {name} fits")


@lowers(
    coreai.unpack_bits.default,
    cases=[
        case(u8(6, constant=True, high=255), 3, [4, 4], False),
        case(u8(2, constant=True, high=255), 4, [4], True),
    ],
)
def unpack_bits(ctx: Ctx, packed: Held, bits: int, shape: Any, signed: bool) -> Any:
    """Constants stay constants: the op that takes them packs them again."""
    if not isinstance(packed, torch.Tensor):
        ctx.refuse("packed integers that are computed at run time", "a constant or buffer")
    return unpacked(packed, bits, list(shape), signed)


def plain(held: Any) -> Any:
    """A packed tensor as the op takes it; decomposition would have done that already."""
    return held.for_op() if isinstance(held, SubbyteTensor) else held


@lowers(coreai.lut_to_dense.default, cases=LUTS)
def lut_to_dense(ctx: Ctx, indices: Held, lut: Held, axis: Axis) -> Value:
    indices, entries = plain(indices), int(ctx.fake("lut").shape[-2])
    bits = next((b for b in _INDEX_BITS if 2**b >= entries), None)
    if bits is None:
        ctx.refuse(f"lut {ctx.path('lut')!r} of {entries} entries; 256 is the most")
    return cmp.lut_to_dense(_indices(ctx, indices, bits, entries), _table(ctx, lut, bits), axis)


def _indices(ctx: Ctx, indices: Any, bits: int, entries: int) -> Value:
    name = ctx.path("indices")
    if not isinstance(indices, torch.Tensor):
        if cmp.element_name(indices) == "ui8" and entries == 256:  # all of them are in the table
            return indices
        ctx.refuse(f"indices {name!r} that are computed at run time", "a constant or buffer")
    refuse_unless(ctx, "indices", checks.within_table, indices, entries)
    return unsigned(indices, bits, name)


def _table(ctx: Ctx, lut: Any, bits: int) -> Value:
    """The table, filled up with zeros to all the entries that indices of this width can name."""
    name = ctx.path("lut")
    missing = 2**bits - int(ctx.fake("lut").shape[-2])
    if not isinstance(lut, torch.Tensor):
        if missing:
            ctx.refuse(f"lut {name!r} of a length that is computed at run time and no power of 2")
        return lut
    if missing:
        *blocks, _, vector = lut.shape
        none = torch.zeros(*blocks, missing, vector, dtype=lut.dtype)
        lut = torch.cat([lut.cpu(), none], dim=-2)
    return cai.tensor_constant(lut, name)


def unsigned(values: torch.Tensor, bits: int, name: str) -> Value:
    """A constant of unsigned integers of that width."""
    shape = tuple(values.shape)
    return cmp.packed(values, f"ui{bits}", shape, lambda v: pack_uintx(v, bits), name)


def integers(values: torch.Tensor, numbers: Integers, name: str) -> Value:
    """A constant of integers of any width up to a byte, each in as few bits as it has."""
    if numbers.bits == 8:
        return cai.tensor_constant(values.to(numbers.container), name)
    if numbers.bits in _SCALED_BITS:
        pack = pack_intx if numbers.signed else pack_uintx
        element = f"{'s' if numbers.signed else 'u'}i{numbers.bits}"
        shape = tuple(values.shape)
        return cmp.packed(values, element, shape, lambda v: pack(v, numbers.bits), name)
    # The ops that scale take 2, 4 and 8 bits; a table of all the numbers takes 1, 3 and 6 too.
    bits = next(b for b in _INDEX_BITS if b >= numbers.bits)
    table = torch.arange(numbers.low, numbers.low + 2**bits).to(numbers.container)
    lut = cai.tensor_constant(table.reshape(*[1] * values.dim(), -1, 1), f"{name}.numbers")
    shifted = values.to(torch.int16) - numbers.low
    return cmp.lut_to_dense(unsigned(shifted, bits, name), lut, 0)


@lowers(coreai.constexpr_blockwise_shift_scale.default, cases=BLOCKS)
def constexpr_blockwise_shift_scale(
    ctx: Ctx,
    x: Held,
    scale: Held,
    zero_point: Held | None,
    minval: Held | None,
    input_dtype: torch.dtype | None,
    output_dtype: torch.dtype | None,
) -> Value:
    kind = checks.data(ctx.fake("input"), ctx.fake("scale"), input_dtype)
    if ctx.out.rank == 0:
        ctx.refuse(f"input {ctx.path('input')!r} of rank 0", "a weight with at least one axis")
    x, dtype = plain(x), ctx.out_dtype
    if kind.numbers is not None:
        return scaled_integers(ctx, x, kind.numbers, scale, zero_point, minval)
    if kind.dtype == FLOAT4:
        return _scaled_float4(ctx, x, scale, dtype)
    data = x if isinstance(x, Value) else cai.tensor_constant(x, ctx.path("input"))
    if kind.dtype not in FLOAT8:
        data = cai.cast(data, dtype)
    elif _is_power(scale):
        return _scaled(data, _powers(ctx, scale), dtype)
    return _scaled(data, floats(ctx, "scale", scale, dtype), dtype)


def scaled_integers(
    ctx: Ctx, x: Any, numbers: Integers, scale: Any, zero_point: Any, minval: Any
) -> Value:
    """Constants in as few bits as they have, shifted and scaled."""
    dtype = ctx.out_dtype
    if isinstance(x, torch.Tensor):
        refuse_unless(ctx, "input", checks.within, x, numbers)
        data = integers(x, numbers, ctx.path("input"))
    else:
        data = cai.cast(x, numbers.container)
    scales = floats(ctx, "scale", scale, dtype)
    element, shape = cmp.element_name(data), tuple(scales.type.shape)
    if minval is not None:
        least = cmp.splat(numbers.low, element, shape)
        return cmp.blockwise_shift_scale(data, scales, least, floats(ctx, "minval", minval, dtype))
    zero = _zero_point(ctx, zero_point, numbers, element, shape)
    return _scaled(data, scales, dtype, zero)


def _zero_point(
    ctx: Ctx, held: Any, numbers: Integers, element: str, shape: tuple[int, ...]
) -> Value:
    if held is None:
        return cmp.splat(0, element, shape)
    if not isinstance(held, torch.Tensor):
        if element not in ("si8", "ui8"):
            ctx.refuse(f"zero_point {ctx.path('zero_point')!r} that is computed at run time")
        return cai.cast(held, numbers.container)
    refuse_unless(ctx, "zero_point", checks.within, held, numbers)
    if bool((held == held.flatten()[0]).all()):
        return cmp.splat(int(held.flatten()[0]), element, shape)
    wide = numbers if numbers.bits in _SCALED_BITS else Integers(8, numbers.signed)
    return integers(held, wide, ctx.path("zero_point"))


def _scaled(data: Value, scale: Value, dtype: torch.dtype, zero: Value | None = None) -> Value:
    shape = tuple(scale.type.shape)
    none = cmp.splat(0, cmp.element_name(data), shape) if zero is None else zero
    return cmp.blockwise_shift_scale(data, scale, none, cmp.splat(0.0, ELEMENT[dtype], shape))


ELEMENT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def floats(ctx: Ctx, name: str, held: Any, dtype: torch.dtype) -> Value:
    """A parameter in the dtype of the result: in another, the run time would misread it."""
    if isinstance(held, torch.Tensor):
        return cai.tensor_constant(held.to(dtype), ctx.path(name))
    return cai.cast(held, dtype)


def _is_power(scale: Any) -> bool:
    return isinstance(scale, torch.Tensor) and scale.dtype == SCALES_OF_TWO


def _powers(ctx: Ctx, scale: torch.Tensor) -> Value:
    """Scales that are powers of two, a byte each."""
    shape = tuple(scale.shape)
    return cmp.packed(
        scale, "f8E8M0FNU", shape, lambda s: s.contiguous().view(torch.uint8), ctx.path("scale")
    )


def _scaled_float4(ctx: Ctx, x: Any, scale: Any, dtype: torch.dtype) -> Value:
    if not isinstance(x, torch.Tensor):
        name = ctx.path("input")
        ctx.refuse(f"4-bit floats {name!r} that are computed at run time", "a constant or buffer")
    shape = (*x.shape[:-1], 2 * x.shape[-1])
    data = cmp.packed(x, "f4E2M1FN", shape, lambda v: v.view(torch.uint8), ctx.path("input"))
    if _is_power(scale):
        return _scaled(data, _powers(ctx, scale), dtype)
    # With 4-bit floats the op takes no scales in f32: first scaled by one, which is exact.
    one = cmp.splat(1.0, "f8E8M0FNU", [1] * len(shape))
    return _scaled(_scaled(data, one, dtype), floats(ctx, "scale", scale, dtype), dtype)


@lowers(coreai.sparse_to_dense.default, cases=SPARSE)
def sparse_to_dense(ctx: Ctx, nonzero_data: Held, mask: Held) -> Value:
    mask, name = plain(mask), ctx.path("mask")
    if not isinstance(mask, torch.Tensor):
        ctx.refuse(f"mask {name!r} that is computed at run time", "a constant or buffer")
    data = ctx.fake("nonzero_data")
    if (count := int((mask != 0).sum())) != data.numel():
        given = f"{data.numel()} nonzero_data {ctx.path('nonzero_data')!r}"
        ctx.refuse(f"mask {name!r} marks {count} places for {given}", "as many data as places")
    if isinstance(nonzero_data, torch.Tensor):
        nonzero_data = cai.tensor_constant(nonzero_data, ctx.path("nonzero_data"))
    return cmp.sparse_to_dense(nonzero_data, unsigned(mask, 1, name))
