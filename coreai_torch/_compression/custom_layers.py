"""Layers with compressed weights; importing this module registers the compression ops."""

from ..compression.modules import (
    ActivationDequantizeModule,
    ActivationQuantizeModule,
    PalettizeModule,
    ScaledPalettizeModule,
    SparseModule,
    WeightDequantizeModule,
)

__all__ = [
    "ActivationDequantizeModule",
    "ActivationQuantizeModule",
    "PalettizeModule",
    "ScaledPalettizeModule",
    "SparseModule",
    "WeightDequantizeModule",
]
