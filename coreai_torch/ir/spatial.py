"""Ops over two or three spatial axes: convolutions, pools and resampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import RankedTensorType, Value

from .build import Build
from .shapes import i32, u32


def conv(
    x: Value, weight: Value, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Value:
    """Convolve over two or three spatial axes, without padding or bias."""
    op = gen.Conv2dOp if len(stride) == 2 else gen.Conv3dOp
    return op(x, weight, u32(list(stride)), u32(list(dilation)), u32(groups)).result


def conv_transpose(
    result: RankedTensorType,
    x: Value,
    weight: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """Convolve, transposed, over two or three spatial axes; the result type is not checked."""
    op = gen.ConvTranspose2dOp if len(stride) == 2 else gen.ConvTranspose3dOp
    windows = (u32(list(w)) for w in (stride, padding, dilation, output_padding))
    return op(result, x, weight, *windows, u32(groups)).result


def max_pool(
    result: RankedTensorType,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Value:
    """Pool over two or three spatial axes, without padding; the result type is not checked."""
    op = gen.MaxPool2dOp if len(kernel) == 2 else gen.MaxPool3dOp
    windows = (u32(list(w)) for w in (kernel, stride, dilation))
    return op(result, x, *windows, Build.current().number(False, torch.bool)).result


def sum_pool(
    x: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Value:
    """Pool over two or three spatial axes, without padding."""
    op = gen.SumPool2dOp if len(kernel) == 2 else gen.SumPool3dOp
    return op(x, *(u32(list(w)) for w in (kernel, stride, dilation))).result


def interpolate(
    x: Value,
    output_shape: Sequence[int],
    scale: Sequence[float],
    offset: Sequence[float],
    mode: str,
) -> Value:
    """Resample all axes; `coord = (i + .5 - offset) / scale - .5`."""
    return _coreai.interpolate(
        x,
        i32(list(output_shape)),
        _floats(scale),
        _floats(offset),
        mode,
    )


def _floats(values: Sequence[float]) -> Value:
    return Build.current().tensor(torch.tensor(list(values), dtype=torch.float32), "table")
