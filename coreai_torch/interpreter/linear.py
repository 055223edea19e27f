"""Matrix products and convolutions: f16 and bf16 accumulate in float32, as on devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

from ..asset.reading import Op
from . import carriers
from .registry import Int, Ints, Result, Tensor, plans

# With more rows f32 is faster: 16 rows of 896 times 4864 columns take 4.9 ms, in f16 7.3 ms.
_FEW_ROWS = 4


@plans("batch_matmul", "decomposable.broadcasting_batch_matmul")
def _matmul(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype
    if dtype in carriers.WIDE_UNSIGNED:
        return carriers.by_numpy(np.matmul)
    if dtype in carriers.FLOAT8:
        return carriers.by_float32(torch.matmul, dtype)
    if dtype == torch.float16:
        return _half_matmul
    if carriers.is_integer(dtype):  # sum in 64 bits and keep the low bits
        return carriers.on_host(lambda x, y: torch.matmul(x.long(), y.long()).to(dtype))
    return lambda x, y: torch.matmul(x, y)


def _half_matmul(x: Tensor, y: Tensor) -> Tensor:
    """Multiply in f16 for a few rows, else in f32, which is faster; both accumulate in f32."""
    is_short = y.dim() == 2 and x.numel() <= _FEW_ROWS * x.shape[-1]
    if is_short or x.device.type != "cpu":  # cuBLAS accumulates f16 in f32 as well
        return torch.matmul(x, y)
    return torch.matmul(x.float(), y.float()).to(torch.float16)


@plans("conv2d", "conv3d")
def _conv(op: Op) -> Callable[..., Result]:
    native = functional.conv2d if op.name.endswith("2d") else functional.conv3d
    dtype = op.types[0].dtype

    def conv(x: Tensor, weight: Tensor, stride: Ints, dilation: Ints, groups: Int) -> Tensor:
        return native(x, weight, None, stride, 0, dilation, groups)

    def eight_bits(x: Tensor, weight: Tensor, stride: Ints, dilation: Ints, groups: Int) -> Tensor:
        return carriers.to_float8(conv(x.float(), weight.float(), stride, dilation, groups), dtype)

    def half(x: Tensor, weight: Tensor, stride: Ints, dilation: Ints, groups: Int) -> Tensor:
        # Both accumulate in float32, but torch takes 63 ms in f16 and 2 ms in f32.
        return conv(x.float(), weight.float(), stride, dilation, groups).half()

    if dtype == torch.float16:
        return half
    return eight_bits if dtype in carriers.FLOAT8 else conv


@plans("conv_transpose2d", "conv_transpose3d")
def _conv_transpose(op: Op) -> Callable[..., Result]:
    native = functional.conv_transpose2d if op.name.endswith("2d") else functional.conv_transpose3d
    dtype = op.types[0].dtype
    is_narrow = dtype in (*carriers.FLOAT8, torch.float16)

    def conv_transpose(
        x: Tensor,
        weight: Tensor,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        output_pad: Ints,
        groups: Int,
    ) -> Tensor:
        if is_narrow:
            x, weight = x.float(), weight.float()
        fits = all(o < max(s, d) for o, s, d in zip(output_pad, stride, dilation, strict=True))
        if fits:
            made = native(x, weight, None, stride, padding, output_pad, groups, dilation)
        else:  # torch rejects this output_pad: crop the full result, and pad it with zeros
            made = native(x, weight, None, stride, 0, 0, groups, dilation)
            made = _cropped(made, padding, output_pad)
        return carriers.to_float8(made, dtype) if dtype in carriers.FLOAT8 else made.to(dtype)

    return conv_transpose


def _cropped(full: Tensor, padding: list[int], output_pad: list[int]) -> Tensor:
    beyond = [[-p, o - p] for p, o in zip(padding, output_pad, strict=True)]
    return functional.pad(full, [side for pair in reversed(beyond) for side in pair])
