"""Layers with compressed weights; importing this module registers the compression ops."""

import torch

from ..compression.modules import (
    ActivationDequantizeModule,
    ActivationQuantizeModule,
    PalettizeModule,
    ScaledPalettizeModule,
    SparseModule,
    WeightDequantizeModule,
)

constexpr_blockwise_shift_scale = torch.ops.coreai.constexpr_blockwise_shift_scale
dequantize = torch.ops.coreai.dequantize
lut_to_dense = torch.ops.coreai.lut_to_dense
quantize = torch.ops.coreai.quantize
sparse_to_dense = torch.ops.coreai.sparse_to_dense

__all__ = [
    "ActivationDequantizeModule",
    "ActivationQuantizeModule",
    "PalettizeModule",
    "ScaledPalettizeModule",
    "SparseModule",
    "WeightDequantizeModule",
    "constexpr_blockwise_shift_scale",
    "dequantize",
    "lut_to_dense",
    "quantize",
    "sparse_to_dense",
]
