"""Lower the compression ops (palettized, blockwise quantized and sparse weights).

The weights stay compressed in the program, which decompresses them when it runs. Torch ops on the
result (a transpose, a cast, a view) stay separate ops, because values computed in the graph are not
folded.
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
from ...lowering.binding import Axis, ConstantOrValue
from ...lowering.cases import case, u8
from ...lowering.context import Ctx
from ...lowering.registry import lowers
from .compressed_weight_cases import BLOCKS, LUTS, SPARSE

coreai = torch.ops.coreai

# Bit widths of table indices, and of integers that are scaled.
_INDEX_BITS = (1, 2, 3, 4, 6, 8)
_SCALED_BITS = (2, 4, 8)


def refuse_unless(ctx: Ctx, name: str, check: Any, *given: Any) -> None:
    """Report a failed check of an argument as an error with the tensor's path."""
    try:
        check(f"{name} {ctx.path(name)!r}", *given)
    except ValueError as wrong:
        ctx.refuse(str(wrong), f"pass valid {name}")


@lowers(
    coreai.unpack_bits.default,
    cases=[
        case(u8(6, constant=True, high=255), 3, [4, 4], False),
        case(u8(2, constant=True, high=255), 4, [4], True),
    ],
)
def unpack_bits(ctx: Ctx, packed: ConstantOrValue, bits: int, shape: Any, signed: bool) -> Any:
    """Unpack constants; the op that reads them packs them again."""
    if not isinstance(packed, torch.Tensor):
        ctx.refuse(
            "packed integers computed at run time are not supported", "pass a constant or buffer"
        )
    return unpacked(packed, bits, list(shape), signed)


def packed_operand(value: Any) -> Any:
    """Return a packed tensor in the form that the op reads, as decomposition also does."""
    return value.for_op() if isinstance(value, SubbyteTensor) else value


@lowers(coreai.lut_to_dense.default, cases=LUTS)
def lut_to_dense(ctx: Ctx, indices: ConstantOrValue, lut: ConstantOrValue, axis: Axis) -> Value:
    indices, entries = packed_operand(indices), int(ctx.fake("lut").shape[-2])
    bits = next((b for b in _INDEX_BITS if 2**b >= entries), None)
    if bits is None:
        ctx.refuse(f"lut {ctx.path('lut')!r} has {entries} entries; at most 256 are supported")
    return cmp.lut_to_dense(_indices(ctx, indices, bits, entries), _table(ctx, lut, bits), axis)


def _indices(ctx: Ctx, indices: Any, bits: int, entries: int) -> Value:
    name = ctx.path("indices")
    if not isinstance(indices, torch.Tensor):
        if cmp.element_name(indices) == "ui8" and entries == 256:  # all indices are in range
            return indices
        ctx.refuse(
            f"indices {name!r} computed at run time are not supported", "pass a constant or buffer"
        )
    refuse_unless(ctx, "indices", checks.within_table, indices, entries)
    return unsigned(indices, bits, name)


def _table(ctx: Ctx, lut: Any, bits: int) -> Value:
    """Return the table, padded with zeros to all entries that indices of this width can address."""
    name = ctx.path("lut")
    missing = 2**bits - int(ctx.fake("lut").shape[-2])
    if not isinstance(lut, torch.Tensor):
        if missing:
            ctx.refuse(f"lut {name!r} computed at run time must have a power of 2 as its length")
        return lut
    if missing:
        *blocks, _, vector = lut.shape
        zeros = torch.zeros(*blocks, missing, vector, dtype=lut.dtype)
        lut = torch.cat([lut.cpu(), zeros], dim=-2)
    return cai.tensor_constant(lut, name)


def unsigned(values: torch.Tensor, bits: int, name: str) -> Value:
    """Return a constant of unsigned integers of this bit width."""
    shape = tuple(values.shape)
    return cmp.packed(values, f"ui{bits}", shape, lambda v: pack_uintx(v, bits), name)


def integers(values: torch.Tensor, numbers: Integers, name: str) -> Value:
    """Return a constant of integers of up to 8 bits, stored in as few bits as possible."""
    if numbers.bits == 8:
        return cai.tensor_constant(values.to(numbers.container), name)
    if numbers.bits in _SCALED_BITS:
        pack = pack_intx if numbers.signed else pack_uintx
        element = f"{'s' if numbers.signed else 'u'}i{numbers.bits}"
        shape = tuple(values.shape)
        return cmp.packed(values, element, shape, lambda v: pack(v, numbers.bits), name)
    # The scaling ops support 2, 4 and 8 bits; a table of all values supports 1, 3 and 6 too.
    bits = next(b for b in _INDEX_BITS if b >= numbers.bits)
    table = torch.arange(numbers.low, numbers.low + 2**bits).to(numbers.container)
    lut = cai.tensor_constant(table.reshape(*[1] * values.dim(), -1, 1), f"{name}.numbers")
    shifted = values.to(torch.int16) - numbers.low
    return cmp.lut_to_dense(unsigned(shifted, bits, name), lut, 0)


@lowers(coreai.constexpr_blockwise_shift_scale.default, cases=BLOCKS)
def constexpr_blockwise_shift_scale(
    ctx: Ctx,
    x: ConstantOrValue,
    scale: ConstantOrValue,
    zero_point: ConstantOrValue | None,
    minval: ConstantOrValue | None,
    input_dtype: torch.dtype | None,
    output_dtype: torch.dtype | None,
) -> Value:
    kind = checks.data(ctx.fake("input"), ctx.fake("scale"), input_dtype)
    if ctx.out.rank == 0:
        ctx.refuse(
            f"input {ctx.path('input')!r} of rank 0 is not supported",
            "pass a weight with at least one axis",
        )
    x, dtype = packed_operand(x), ctx.out_dtype
    if kind.numbers is not None:
        return scaled_integers(ctx, x, kind.numbers, scale, zero_point, minval)
    if kind.dtype == FLOAT4:
        return _scaled_float4(ctx, x, scale, dtype)
    data = x if isinstance(x, Value) else cai.tensor_constant(x, ctx.path("input"))
    if kind.dtype not in FLOAT8:
        data = cai.cast(data, dtype)
    elif _is_power_of_two(scale):
        return _scaled(data, _power_of_two_scales(ctx, scale), dtype)
    return _scaled(data, floats(ctx, "scale", scale, dtype), dtype)


def scaled_integers(
    ctx: Ctx, x: Any, numbers: Integers, scale: Any, zero_point: Any, minval: Any
) -> Value:
    """Shift and scale integers; constants are stored in as few bits as possible."""
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
    ctx: Ctx, value: Any, numbers: Integers, element: str, shape: tuple[int, ...]
) -> Value:
    if value is None:
        return cmp.splat(0, element, shape)
    if not isinstance(value, torch.Tensor):
        if element not in ("si8", "ui8"):
            ctx.refuse(
                f"zero_point {ctx.path('zero_point')!r} computed at run time is not supported"
            )
        return cai.cast(value, numbers.container)
    refuse_unless(ctx, "zero_point", checks.within, value, numbers)
    if bool((value == value.flatten()[0]).all()):
        return cmp.splat(int(value.flatten()[0]), element, shape)
    wide = numbers if numbers.bits in _SCALED_BITS else Integers(8, numbers.signed)
    return integers(value, wide, ctx.path("zero_point"))


def _scaled(data: Value, scale: Value, dtype: torch.dtype, zero: Value | None = None) -> Value:
    shape = tuple(scale.type.shape)
    zeros = cmp.splat(0, cmp.element_name(data), shape) if zero is None else zero
    return cmp.blockwise_shift_scale(data, scale, zeros, cmp.splat(0.0, ELEMENT[dtype], shape))


ELEMENT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def floats(ctx: Ctx, name: str, value: Any, dtype: torch.dtype) -> Value:
    """Return a parameter in the result's dtype; the runtime (1.0.0b3) misreads any other."""
    if isinstance(value, torch.Tensor):
        return cai.tensor_constant(value.to(dtype), ctx.path(name))
    return cai.cast(value, dtype)


def _is_power_of_two(scale: Any) -> bool:
    return isinstance(scale, torch.Tensor) and scale.dtype == SCALES_OF_TWO


def _power_of_two_scales(ctx: Ctx, scale: torch.Tensor) -> Value:
    """Return power-of-two scales, stored in one byte each."""
    shape = tuple(scale.shape)
    return cmp.packed(
        scale, "f8E8M0FNU", shape, lambda s: s.contiguous().view(torch.uint8), ctx.path("scale")
    )


def _scaled_float4(ctx: Ctx, x: Any, scale: Any, dtype: torch.dtype) -> Value:
    if not isinstance(x, torch.Tensor):
        name = ctx.path("input")
        ctx.refuse(
            f"4-bit floats {name!r} computed at run time are not supported",
            "pass a constant or buffer",
        )
    shape = (*x.shape[:-1], 2 * x.shape[-1])
    data = cmp.packed(x, "f4E2M1FN", shape, lambda v: v.view(torch.uint8), ctx.path("input"))
    if _is_power_of_two(scale):
        return _scaled(data, _power_of_two_scales(ctx, scale), dtype)
    # With 4-bit floats the op does not accept float32 scales: first scale by 1, which is exact.
    one = cmp.splat(1.0, "f8E8M0FNU", [1] * len(shape))
    return _scaled(_scaled(data, one, dtype), floats(ctx, "scale", scale, dtype), dtype)


@lowers(coreai.sparse_to_dense.default, cases=SPARSE)
def sparse_to_dense(ctx: Ctx, nonzero_data: ConstantOrValue, mask: ConstantOrValue) -> Value:
    mask, name = packed_operand(mask), ctx.path("mask")
    if not isinstance(mask, torch.Tensor):
        ctx.refuse(
            f"mask {name!r} computed at run time is not supported", "pass a constant or buffer"
        )
    data = ctx.fake("nonzero_data")
    if (count := int((mask != 0).sum())) != data.numel():
        given = f"{data.numel()} nonzero_data {ctx.path('nonzero_data')!r}"
        ctx.refuse(
            f"mask {name!r} marks {count} places for {given}", "pass one value per marked place"
        )
    if isinstance(nonzero_data, torch.Tensor):
        nonzero_data = cai.tensor_constant(nonzero_data, ctx.path("nonzero_data"))
    return cmp.sparse_to_dense(nonzero_data, unsigned(mask, 1, name))
