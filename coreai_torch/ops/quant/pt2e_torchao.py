"""Models that other tools have quantized: the ops that torch.ao, PT2E and torchao leave behind.

They are registered by name, for their libraries may not be there. What is known when a program is
converted is compressed; what comes at run time is rounded as those tools round it: multiplied by
the inverse of the scale, for a division would put every other tie on the wrong side.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...compression.scalars import INTEGERS
from ...ir import compression as cmp
from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering.binding import Held
from ...lowering.cases import bf16, case, f32, u8
from ...lowering.context import Ctx
from ...lowering.registry import decomposes, lowers
from .compressed_weights import ELEMENT, integers

coreai = torch.ops.coreai

_BYTES = (torch.int8, torch.uint8)


def _narrowest(dtype: torch.dtype, low: float, high: float) -> torch.dtype:
    """The dtype of the fewest bits, signed or not as that one, which holds the whole range."""
    signed = INTEGERS[dtype].signed
    fitting = (
        (numbers.bits, named)
        for named, numbers in INTEGERS.items()
        if numbers.signed == signed and numbers.low <= low and high <= numbers.high
    )
    return min(fitting, key=lambda found: found[0])[1]


def widened(held: Tensor, name: str, dtype: torch.dtype) -> Value:
    """A constant of 8-bit numbers, stored in as few bits as they need, in a wider float dtype."""
    if held.dtype in _BYTES:
        low, high = (int(v) for v in torch.aminmax(held))
        data = integers(held, INTEGERS[_narrowest(held.dtype, low, high)], name)
    else:
        data = cai.tensor_constant(held, name)
    ones = [1] * held.dim()
    none = cmp.splat(0, cmp.element_name(data), ones)
    one, zero = (cmp.splat(number, ELEMENT[dtype], ones) for number in (1.0, 0.0))
    return cmp.blockwise_shift_scale(data, one, none, zero)


# Packed for a processor ------------------------------------------------------------------------

_PACKED = u8(32, 32, high=255, constant=True)
# As many digits to the base of 16 as a float32 holds exactly, with a digit to spare.
_DIGITS = 5


def _unpacked(packed: Tensor, group: int) -> Tensor:
    """The integers, from -8, of a weight whose order of bytes only this processor knows.

    The product itself is asked for them: with powers of 16 as its other operand, scales of one
    and zeros of none, the digits of the result are the weight's.
    """
    rows, columns = packed.shape[0], 2 * packed.shape[1]
    places = torch.arange(columns)
    asked = torch.zeros(-(-columns // _DIGITS), columns)
    asked[places // _DIGITS, places] = torch.pow(16.0, places % _DIGITS)
    plain = torch.tensor([1.0, 0.0]).expand(columns // group, rows, 2).contiguous()
    sums = torch.ops.aten._weight_int4pack_mm_for_cpu(asked, packed, group, plain)
    shifted = sums.to(torch.int32) + 8 * (16**_DIGITS - 1) // 15
    digits = (shifted[:, None] >> (4 * torch.arange(_DIGITS, dtype=torch.int32)[:, None])) & 15
    return (digits.flatten(0, 1)[:columns].T - 8).to(torch.int8).contiguous()


@lowers(
    torch.ops.aten._weight_int4pack_mm_for_cpu.default,
    cases=[
        case(f32(3, 64), _PACKED, 32, f32(2, 32, 2, constant=True)),
        # Whole numbers: the weight itself is rounded to bfloat16, in the processor to float32.
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
    mat2: Held,
    qGroupSize: int,  # noqa: N803  the schema's names
    qScaleAndZeros: Held,  # noqa: N803
) -> Value:
    """`(integers * scale + zero).T`, in blocks of a row, behind a product."""
    if not isinstance(mat2, Tensor) or not isinstance(qScaleAndZeros, Tensor):
        ctx.refuse("a packed weight that is computed at run time", "a constant or buffer")
    name, parameters = ctx.path("mat2"), ctx.path("qScaleAndZeros")
    data = integers(_unpacked(mat2, qGroupSize), INTEGERS[torch.int4], name)
    scale, zero = (
        cai.tensor_constant(qScaleAndZeros[..., i].T.contiguous(), f"{parameters}.{kind}")
        for i, kind in enumerate(("scale", "zero"))
    )
    none = cmp.splat(0, cmp.element_name(data), scale.type.shape)
    weight = cmp.blockwise_shift_scale(data, scale, none, zero)
    return cai.matmul(x, cai.transpose(weight, [1, 0]))


# Quantizing ------------------------------------------------------------------------------------


def _rounded(scaled: Tensor, zero: Tensor, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """Rounded, shifted and cut off; `zero` broadcasts."""
    if dtype in _BYTES and zero.numel() == 1:
        one = torch.ones((), dtype=torch.float32, device=scaled.device)
        whole = coreai.quantize(scaled, one, dtype, zero.reshape(()).to(torch.int32))
        full = INTEGERS[dtype].low >= low and INTEGERS[dtype].high <= high
        return whole if full else whole.clamp(low, high)
    return torch.clamp(torch.round(scaled) + zero, low, high).to(dtype)


@decomposes("quantized_decomposed::quantize_per_tensor")
def quantize_per_tensor(
    input: Tensor, scale: float, zero_point: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    zero = torch.full((), zero_point, dtype=torch.int32, device=input.device)
    return _rounded(input.float() * (1.0 / scale), zero, low, high, dtype)


@decomposes("quantized_decomposed::quantize_per_tensor.tensor")
def quantize_by_tensors(
    input: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    return _rounded(input.float() * (1.0 / scale.float()), zero_point, low, high, dtype)


@decomposes("quantized_decomposed::quantize_per_token")
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """This one is shifted before it is rounded."""
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
    return _rounded(scaled, zero_points.reshape(shape), low, high, dtype)


def _parameters(low: Tensor, high: Tensor, steps: float, eps: float) -> tuple[Tensor, Tensor]:
    """The scale, and the least number or zero."""
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
    """The zero point is counted from the end of the range that errs the less."""
    low, high = torch.amin(input, -1, keepdim=True), torch.amax(input, -1, keepdim=True)
    scale, least = _parameters(low, high, 255.0, torch.finfo(torch.float32).eps)
    down, up = least / scale, torch.clamp(high, min=0.0) / scale
    zero = torch.where((down - 128) + (up + 127) > 0, -128 - down, 127 - up)
    return scale.double(), torch.round(torch.clamp(zero, -128, 127)).long()


# Dequantizing ----------------------------------------------------------------------------------


def _dequantized(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    axis: int,
    range_: tuple[int, int],
    output: torch.dtype,
) -> Tensor:
    """Per tensor, or one scale for each place on the axis."""
    if input.dtype not in _BYTES:
        shape = [1] * input.dim()
        if scale.numel() != 1:
            shape[axis] = -1
        shifted = input if zero_point is None else input - zero_point.reshape(shape)
        return (shifted * scale.reshape(shape)).to(output)
    found: Tensor = coreai.dequantize(
        input,
        scale.to(output),
        None if zero_point is None else zero_point.to(torch.int32),
        None,
        axis,
        _narrowest(input.dtype, *range_),
        output,
    )
    return found


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
    return _dequantized(input, one, zero, 0, (low, high), out_dtype or torch.float32)


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
    return _dequantized(input, one, zero, 0, (low, high), out_dtype or torch.float32)


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
    return _dequantized(input, scales, zero_points, axis, (low, high), output)


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
    return _in_blocks(input, block, (scales, zero_points), (low, high), output_dtype)


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
    ends = (numbers.low, numbers.high) if numbers else (0, 0)
    low = ends[0] if quant_min is None else int(quant_min)
    high = ends[1] if quant_max is None else int(quant_max)
    return _in_blocks(input, block_size, (scale, zero_point), (low, high), output_dtype)


def _in_blocks(
    input: Tensor,
    block: Sequence[int],
    parameters: tuple[Tensor, Tensor | None],
    range_: tuple[int, int],
    output: torch.dtype,
) -> Tensor:
    """A weight, or what was quantized just before, with a scale and a zero for each block."""
    blocks = [size // each for size, each in zip(input.shape, block, strict=True)]
    scale, zero = (None if p is None else p.reshape(blocks) for p in parameters)
    assert scale is not None
    wide = torch.promote_types(output, scale.dtype)
    if input.dtype in _BYTES and all(isinstance(size, int) for size in input.shape):
        zero = None if zero is None else zero.to(input.dtype)
        found: Tensor = coreai.constexpr_blockwise_shift_scale(
            input, scale.to(wide), zero, None, _narrowest(input.dtype, *range_), wide
        )
        return found.to(output)
    scale = _spread(scale, input, block)
    numbers = input.to(wide)
    if zero is not None:
        numbers = numbers - _spread(zero, input, block).to(wide)
    return (numbers * scale).to(output)


def _spread(parameter: Tensor, input: Tensor, block: Sequence[int]) -> Tensor:
    """One number for each block, repeated so that it broadcasts with the input."""
    for axis, each in enumerate(block):
        if each != 1 and each != input.shape[axis]:
            parameter = parameter.repeat_interleave(each, axis)
    return parameter
