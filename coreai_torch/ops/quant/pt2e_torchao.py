"""Lower quantized models of other tools: the ops of torch.ao, PT2E and torchao.

The ops are registered by name, because their libraries may not be installed. Constants are
compressed. Run-time values are rounded as these tools do: multiplied by the inverse of the scale,
since a division would round half of the ties differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...compression.scalars import INTEGERS
from ...ir import compression as cmp
from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering.binding import ConstantOrValue
from ...lowering.cases import bf16, case, f32, u8
from ...lowering.context import Ctx
from ...lowering.registry import decomposes, lowers
from .compressed_weights import ELEMENT, integers

coreai = torch.ops.coreai

_BYTES = (torch.int8, torch.uint8)


def _narrowest(dtype: torch.dtype, low: float, high: float) -> torch.dtype:
    """Return the narrowest dtype with the signedness of `dtype` that covers the range."""
    signed = INTEGERS[dtype].signed
    candidates = (
        (numbers.bits, named)
        for named, numbers in INTEGERS.items()
        if numbers.signed == signed and numbers.low <= low and high <= numbers.high
    )
    return min(candidates, key=lambda result: result[0])[1]


def widened(weight: Tensor, name: str, dtype: torch.dtype) -> Value:
    """Return 8-bit constants in a wider float dtype, stored in as few bits as possible."""
    if weight.dtype in _BYTES:
        low, high = (int(v) for v in torch.aminmax(weight))
        data = integers(weight, INTEGERS[_narrowest(weight.dtype, low, high)], name)
    else:
        data = cai.tensor_constant(weight, name)
    ones = [1] * weight.dim()
    zeros = cmp.splat(0, cmp.element_name(data), ones)
    one, zero = (cmp.splat(number, ELEMENT[dtype], ones) for number in (1.0, 0.0))
    return cmp.blockwise_shift_scale(data, one, zeros, zero)


# Weights packed for a CPU ----------------------------------------------------------------------

_PACKED = u8(32, 32, high=255, constant=True)
# As many base-16 digits as a float32 holds exactly, with one to spare.
_DIGITS = 5


def _unpack(packed: Tensor, group: int) -> Tensor:
    """Return the integers, from -8, of a weight whose packed layout depends on the CPU.

    The layout is read through the op itself: multiplied by powers of 16, with scales of 1 and zeros
    of 0, the base-16 digits of the result are the weight's integers.
    """
    rows, columns = packed.shape[0], 2 * packed.shape[1]
    positions = torch.arange(columns)
    probe = torch.zeros(-(-columns // _DIGITS), columns)
    probe[positions // _DIGITS, positions] = torch.pow(16.0, positions % _DIGITS)
    identity_parameters = torch.tensor([1.0, 0.0]).expand(columns // group, rows, 2).contiguous()
    sums = torch.ops.aten._weight_int4pack_mm_for_cpu(probe, packed, group, identity_parameters)
    shifted = sums.to(torch.int32) + 8 * (16**_DIGITS - 1) // 15
    digits = (shifted[:, None] >> (4 * torch.arange(_DIGITS, dtype=torch.int32)[:, None])) & 15
    return (digits.flatten(0, 1)[:columns].T - 8).to(torch.int8).contiguous()


@lowers(
    torch.ops.aten._weight_int4pack_mm_for_cpu.default,
    cases=[
        case(f32(3, 64), _PACKED, 32, f32(2, 32, 2, constant=True)),
        # Integers: here the weight is rounded to bfloat16, in the CPU kernel to float32.
        case(
            bf16(3, 64, values=(1.0, -2.0, 0.0)),
            _PACKED,
            32,
            bf16(2, 32, 2, values=(1.0, 2.0, -3.0), constant=True),
        ),
    ],
)
def _weight_int4pack_mm_for_cpu(
    ctx: Ctx,
    x: Value,
    mat2: ConstantOrValue,
    qGroupSize: int,  # noqa: N803  the schema's names
    qScaleAndZeros: ConstantOrValue,  # noqa: N803
) -> Value:
    """Multiply by `(integers * scale + zero).T`, with one scale and zero per block of a row."""
    if not isinstance(mat2, Tensor) or not isinstance(qScaleAndZeros, Tensor):
        ctx.refuse(
            "a packed weight computed at run time is not supported", "pass a constant or buffer"
        )
    name, parameters = ctx.path("mat2"), ctx.path("qScaleAndZeros")
    data = integers(_unpack(mat2, qGroupSize), INTEGERS[torch.int4], name)
    scale, zero = (
        cai.tensor_constant(qScaleAndZeros[..., i].T.contiguous(), f"{parameters}.{kind}")
        for i, kind in enumerate(("scale", "zero"))
    )
    zeros = cmp.splat(0, cmp.element_name(data), scale.type.shape)
    weight = cmp.blockwise_shift_scale(data, scale, zeros, zero)
    return cai.matmul(x, cai.transpose(weight, [1, 0]))


# Quantize --------------------------------------------------------------------------------------


def _round_and_clamp(
    scaled: Tensor, zero: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """Round, add `zero` (which broadcasts), and clamp."""
    if dtype in _BYTES and zero.numel() == 1:
        one = torch.ones((), dtype=torch.float32, device=scaled.device)
        quantized = coreai.quantize(scaled, one, dtype, zero.reshape(()).to(torch.int32))
        covers_dtype = INTEGERS[dtype].low >= low and INTEGERS[dtype].high <= high
        return quantized if covers_dtype else quantized.clamp(low, high)
    return torch.clamp(torch.round(scaled) + zero, low, high).to(dtype)


@decomposes("quantized_decomposed::quantize_per_tensor")
def quantize_per_tensor(
    input: Tensor, scale: float, zero_point: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    zero = torch.full((), zero_point, dtype=torch.int32, device=input.device)
    return _round_and_clamp(input.float() * (1.0 / scale), zero, low, high, dtype)


@decomposes("quantized_decomposed::quantize_per_tensor.tensor")
def quantize_by_tensors(
    input: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    return _round_and_clamp(input.float() * (1.0 / scale.float()), zero_point, low, high, dtype)


@decomposes("quantized_decomposed::quantize_per_token")
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """Add the zero point before rounding, unlike the other quantize ops."""
    shifted = input.float() * (1.0 / scales.float()) + zero_points
    return torch.clamp(torch.round(shifted), low, high).to(dtype)


@decomposes("quantized_decomposed::quantize_per_channel")
def quantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    shape = [1] * input.dim()
    shape[axis] = -1
    scaled = input.float() * (1.0 / scales.float()).reshape(shape)
    return _round_and_clamp(scaled, zero_points.reshape(shape), low, high, dtype)


def _parameters(low: Tensor, high: Tensor, steps: float, eps: float) -> tuple[Tensor, Tensor]:
    """Return the scale, and the minimum or zero."""
    least, most = (torch.clamp(low, max=0.0).float(), torch.clamp(high, min=0.0).float())
    return torch.clamp((most - least) / steps, min=eps), least


@decomposes("quantized_decomposed::choose_qparams.tensor")
def choose_qparams(
    input: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    scale, least = _parameters(torch.amin(input), torch.amax(input), float(high - low), eps)
    zero = torch.clamp(low - torch.round(least / scale), low, high)
    return scale.reshape(1).double(), zero.reshape(1).long()


@decomposes("quantized_decomposed::choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    input: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    most = torch.amax(torch.abs(input)).float().reshape(1)
    scale = torch.clamp(most / (float(high - low) / 2), min=eps)
    zero = torch.full_like(scale, 128 if dtype == torch.uint8 else 0)
    return scale.double(), zero.long()


@decomposes("quantized_decomposed::choose_qparams_per_token_asymmetric")
def choose_qparams_per_token_asymmetric(input: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute the zero point from the end of the range with the smaller error."""
    low, high = torch.amin(input, -1, keepdim=True), torch.amax(input, -1, keepdim=True)
    scale, least = _parameters(low, high, 255.0, torch.finfo(torch.float32).eps)
    down, up = least / scale, torch.clamp(high, min=0.0) / scale
    zero = torch.where((down - 128) + (up + 127) > 0, -128 - down, 127 - up)
    return scale.double(), torch.round(torch.clamp(zero, -128, 127)).long()


# Dequantize ------------------------------------------------------------------------------------


def _dequantize(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    axis: int,
    range_: tuple[int, int],
    output: torch.dtype,
) -> Tensor:
    """Dequantize with one scale per tensor, or one per position on the axis."""
    if input.dtype not in _BYTES:
        shape = [1] * input.dim()
        if scale.numel() != 1:
            shape[axis] = -1
        shifted = input if zero_point is None else input - zero_point.reshape(shape)
        return (shifted * scale.reshape(shape)).to(output)
    result: Tensor = coreai.dequantize(
        input,
        scale.to(output),
        None if zero_point is None else zero_point.to(torch.int32),
        None,
        axis,
        _narrowest(input.dtype, *range_),
        output,
    )
    return result


@decomposes("quantized_decomposed::dequantize_per_tensor")
def dequantize_per_tensor(
    input: Tensor,
    scale: float,
    zero_point: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    one = torch.full((), scale, device=input.device)
    zero = torch.full((), zero_point, dtype=torch.int32, device=input.device)
    return _dequantize(input, one, zero, 0, (low, high), out_dtype or torch.float32)


@decomposes("quantized_decomposed::dequantize_per_tensor.tensor")
def dequantize_by_tensors(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    one, zero = scale.reshape(()), zero_point.reshape(())
    return _dequantize(input, one, zero, 0, (low, high), out_dtype or torch.float32)


@decomposes("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    output = out_dtype or torch.float32
    return _dequantize(input, scales, zero_points, axis, (low, high), output)


@decomposes("quantized_decomposed::dequantize_per_token")
def dequantize_per_token(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype,
) -> Tensor:
    return ((input - zero_points) * scales.float()).to(output_dtype)


@decomposes("quantized_decomposed::dequantize_per_channel_group")
def dequantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    low: int,
    high: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    block = [1, min(group_size, input.shape[-1])]
    return _dequantize_blocks(input, block, (scales, zero_points), (low, high), output_dtype)


@decomposes("torchao::dequantize_affine")
def dequantize_affine(
    input: Tensor,
    block_size: Sequence[int],
    scale: Tensor,
    zero_point: Tensor | None,
    input_dtype: torch.dtype,
    quant_min: float | None = None,
    quant_max: float | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    numbers = INTEGERS.get(input_dtype)
    limits = (numbers.low, numbers.high) if numbers else (0, 0)
    low = limits[0] if quant_min is None else int(quant_min)
    high = limits[1] if quant_max is None else int(quant_max)
    return _dequantize_blocks(input, block_size, (scale, zero_point), (low, high), output_dtype)


def _dequantize_blocks(
    input: Tensor,
    block: Sequence[int],
    parameters: tuple[Tensor, Tensor | None],
    range_: tuple[int, int],
    output: torch.dtype,
) -> Tensor:
    """Dequantize a weight, or a tensor quantized just before, with a scale and zero per block."""
    blocks = [size // each for size, each in zip(input.shape, block, strict=True)]
    scale, zero = (None if p is None else p.reshape(blocks) for p in parameters)
    assert scale is not None
    wide = torch.promote_types(output, scale.dtype)
    if input.dtype in _BYTES and all(isinstance(size, int) for size in input.shape):
        zero = None if zero is None else zero.to(input.dtype)
        result: Tensor = coreai.constexpr_blockwise_shift_scale(
            input, scale.to(wide), zero, None, _narrowest(input.dtype, *range_), wide
        )
        return result.to(output)
    scale = _repeat_blocks(scale, input, block)
    numbers = input.to(wide)
    if zero is not None:
        numbers = numbers - _repeat_blocks(zero, input, block).to(wide)
    return (numbers * scale).to(output)


def _repeat_blocks(parameter: Tensor, input: Tensor, block: Sequence[int]) -> Tensor:
    """Repeat one number per block so that it broadcasts with the input."""
    for axis, each in enumerate(block):
        if each != 1 and each != input.shape[axis]:
            parameter = parameter.repeat_interleave(each, axis)
    return parameter
