"""The compression ops in torch: schemas, eager implementations and argument checks.

They compute like the runtime: numbers are decompressed in the result's dtype, rounded after each
step, and quantized in float32. With an offset and one scale for each row, the runtime on Linux
computes `scale * input + (minval - scale * zero_point)` instead, and may differ by two units in
the last place of `scale * zero_point`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import checks
from .packing import unpack_intx, unpack_uintx
from .scalars import FLOAT8

_LIBRARY = torch.library.Library("coreai", "FRAGMENT")

_FLOAT4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _op(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Define an op by the decorated function; `fake` computes the result's shape and dtype."""

    def define(real: Callable[..., Any]) -> Callable[..., Any]:
        name = schema.partition("(")[0]
        _LIBRARY.define(schema)
        _LIBRARY.impl(name, real, "CompositeExplicitAutograd")
        # The implementations consist of torch ops, which have gradients.
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"coreai::{name}", fake, lib=_LIBRARY)
        return real

    return define


def _per_block(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Repeat one number per block to the full shape."""
    for axis, (blocks, size) in enumerate(zip(x.shape, shape, strict=True)):
        if blocks not in (1, size):
            x = x.repeat_interleave(size // blocks, dim=axis)
    return x.expand(tuple(shape))


def float4_values(packed: torch.Tensor) -> torch.Tensor:
    """Unpack 4-bit floats to float32: two per byte, the low half first."""
    table = torch.tensor([*_FLOAT4_VALUES, *(-v for v in _FLOAT4_VALUES)], device=packed.device)
    halves = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
    return table[halves.to(torch.int32)]


def _fake_lut(indices: torch.Tensor, lut: torch.Tensor, axis: int) -> torch.Tensor:
    return lut.new_empty(checks.lut(indices, lut, axis))


@_op("lut_to_dense(Tensor indices, Tensor lut, SymInt axis) -> Tensor", _fake_lut)
def lut_to_dense(indices: torch.Tensor, lut: torch.Tensor, axis: int) -> torch.Tensor:
    """Replace each index by the entry of its block's table; vector entries extend along `axis`."""
    shape = checks.lut(indices, lut, axis)
    checks.within_table("indices", indices, lut.shape[-2])
    rank, (entries, vector) = indices.dim(), lut.shape[-2:]
    tables = torch.arange(lut[..., 0, 0].numel(), device=lut.device).reshape(lut.shape[:-2])
    rows = _per_block(tables, indices.shape) * entries + indices.to(torch.int64)
    dense = lut.reshape(-1, vector)[rows]
    return dense.movedim(rank, axis % rank + 1).reshape(shape)


def _fake_blockwise(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    minval: torch.Tensor | None = None,
    input_dtype: torch.dtype | None = None,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    data = checks.data(input, scale, input_dtype)
    shape = checks.blocks(input, data, scale, zero_point, minval)
    return input.new_empty(shape, dtype=checks.result_dtype(data, scale, output_dtype))


@_op(
    "constexpr_blockwise_shift_scale(Tensor input, Tensor scale, Tensor? zero_point=None, "
    "Tensor? minval=None, ScalarType? input_dtype=None, ScalarType? output_dtype=None) -> Tensor",
    _fake_blockwise,
)
def constexpr_blockwise_shift_scale(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    minval: torch.Tensor | None = None,
    input_dtype: torch.dtype | None = None,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Compute `scale * (input - zero_point)`, or `scale * input` without a zero point.

    With `minval` it is `scale * (input - least) + minval`, where `least` is the smallest integer
    of the input's type.
    """
    data = checks.data(input, scale, input_dtype)
    shape = checks.blocks(input, data, scale, zero_point, minval)
    checks.within("input", input, data.numbers)
    dtype = checks.result_dtype(data, scale, output_dtype)
    numbers = float4_values(input) if data.is_float4 else input
    spread = [None if t is None else _per_block(t, shape) for t in (scale, zero_point, minval)]
    return _shifted_and_scaled(numbers, data, spread, dtype)


def _shifted_and_scaled(
    numbers: torch.Tensor,
    data: checks.Data,
    parameters: Sequence[torch.Tensor | None],
    dtype: torch.dtype,
) -> torch.Tensor:
    scale, zero_point, minval = (None if p is None else p.to(dtype) for p in parameters)
    assert scale is not None
    if minval is not None and data.numbers is not None:
        return (numbers.to(dtype) - data.numbers.low) * scale + minval
    shifted = numbers.to(dtype) if zero_point is None else numbers.to(dtype) - zero_point
    return shifted * scale


def _fake_quantize(
    input: torch.Tensor,
    scale: torch.Tensor,
    output_dtype: torch.dtype,
    zero_point: torch.Tensor | None = None,
    minval: torch.Tensor | None = None,
    axis: int = 0,
) -> torch.Tensor:
    numbers = checks.quantized(output_dtype, zero_point, minval)
    checks.activation(input, axis, scale=scale, zero_point=zero_point, minval=minval)
    return torch.empty_like(input, dtype=output_dtype if numbers is None else numbers.container)


@_op(
    "quantize(Tensor input, Tensor scale, ScalarType output_dtype, Tensor? zero_point=None, "
    "Tensor? minval=None, SymInt axis=0) -> Tensor",
    _fake_quantize,
)
def quantize(
    input: torch.Tensor,
    scale: torch.Tensor,
    output_dtype: torch.dtype,
    zero_point: torch.Tensor | None = None,
    minval: torch.Tensor | None = None,
    axis: int = 0,
) -> torch.Tensor:
    """Compute `round(input / scale) + zero_point`, ties to even, clamped to the range."""
    numbers = checks.quantized(output_dtype, zero_point, minval)
    checks.activation(input, axis, scale=scale, zero_point=zero_point, minval=minval)
    scale, low = (
        None if p is None else checks.along(p, axis, input.dim()).to(torch.float32)
        for p in (scale, minval)
    )
    wide = input.to(torch.float32)
    scaled = (wide if low is None else wide - low) / scale
    if numbers is None:
        most = torch.finfo(output_dtype).max
        return scaled.clamp(-most, most).to(output_dtype)
    checks.within("zero_point", zero_point, numbers)
    shift: Any = 0 if low is None else numbers.low
    if zero_point is not None:
        shift = checks.along(zero_point, axis, input.dim()).to(torch.float32)
    quantized = (scaled.round() + shift).clamp(numbers.low, numbers.high)
    return quantized.nan_to_num(0.0).to(numbers.container)


def _fake_dequantize(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    minval: torch.Tensor | None = None,
    axis: int = 0,
    input_dtype: torch.dtype | None = None,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    data = checks.data(input, scale, input_dtype)
    checks.dequantized(data, zero_point, minval)
    checks.activation(input, axis, scale=scale, zero_point=zero_point, minval=minval)
    return torch.empty_like(input, dtype=checks.result_dtype(data, scale, output_dtype))


@_op(
    "dequantize(Tensor input, Tensor scale, Tensor? zero_point=None, Tensor? minval=None, "
    "SymInt axis=0, ScalarType? input_dtype=None, ScalarType? output_dtype=None) -> Tensor",
    _fake_dequantize,
)
def dequantize(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    minval: torch.Tensor | None = None,
    axis: int = 0,
    input_dtype: torch.dtype | None = None,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Invert `quantize`: the formulas of weights, per tensor or per axis."""
    data = checks.data(input, scale, input_dtype)
    checks.dequantized(data, zero_point, minval)
    checks.activation(input, axis, scale=scale, zero_point=zero_point, minval=minval)
    spread = [
        None if p is None else checks.along(p, axis, input.dim())
        for p in (scale, zero_point, minval)
    ]
    dtype = checks.result_dtype(data, scale, output_dtype)
    return _shifted_and_scaled(input, data, spread, dtype)


def _fake_sparse(nonzero_data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    checks.sparse(nonzero_data, mask)
    return nonzero_data.new_empty(mask.shape)


@_op("sparse_to_dense(Tensor nonzero_data, Tensor mask) -> Tensor", _fake_sparse)
def sparse_to_dense(nonzero_data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scatter the data to the positions that the mask marks, in order; zeros elsewhere."""
    checks.sparse(nonzero_data, mask)
    positions = checks.marked(nonzero_data, mask)
    if nonzero_data.dtype in FLOAT8:  # masked_scatter does not support 8-bit floats
        raw = sparse_to_dense(nonzero_data.view(torch.uint8), mask)
        return raw.view(nonzero_data.dtype)
    return nonzero_data.new_zeros(mask.shape).masked_scatter(positions, nonzero_data)


def _fake_unpack(
    packed: torch.Tensor, bits: int, shape: Sequence[int], signed: bool
) -> torch.Tensor:
    return packed.new_empty(shape, dtype=torch.int8 if signed else torch.uint8)


@_op("unpack_bits(Tensor packed, int bits, int[] shape, bool signed) -> Tensor", _fake_unpack)
def unpack_bits(
    packed: torch.Tensor, bits: int, shape: Sequence[int], signed: bool
) -> torch.Tensor:
    """Unpack integers of a few bits each to one byte each."""
    count = int(torch.Size(shape).numel())
    return (unpack_intx if signed else unpack_uintx)(packed, bits, count).reshape(shape)


__all__ = [
    "constexpr_blockwise_shift_scale",
    "dequantize",
    "float4_values",
    "lut_to_dense",
    "quantize",
    "sparse_to_dense",
    "unpack_bits",
]
