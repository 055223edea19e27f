"""Compressed weights in torch: ops, layers and tensors that conversion keeps compressed."""

from .modules import (
    ActivationDequantizeModule,
    ActivationQuantizeModule,
    PalettizeModule,
    ScaledPalettizeModule,
    SparseModule,
    WeightDequantizeModule,
    wrap_for_parametrization,
)
from .subbyte import Float4Tensor, IntxTensor, SubbyteTensor, UintxTensor

__all__ = [
    "ActivationDequantizeModule",
    "ActivationQuantizeModule",
    "Float4Tensor",
    "IntxTensor",
    "PalettizeModule",
    "ScaledPalettizeModule",
    "SparseModule",
    "SubbyteTensor",
    "UintxTensor",
    "WeightDequantizeModule",
    "wrap_for_parametrization",
]
