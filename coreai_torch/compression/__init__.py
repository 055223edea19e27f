"""Compressed weights in torch: ops, layers and tensors that stay compressed in the program."""

from .compressing import compress
from .compression_report import CompressedWeight, CompressionReport
from .measuring import Sensitivity, SensitivityRow, sensitivity
from .modules import (
    ActivationDequantizeModule,
    ActivationQuantizeModule,
    PalettizeModule,
    ScaledPalettizeModule,
    SparseModule,
    WeightDequantizeModule,
    wrap_for_parametrization,
)
from .specs import Spec
from .subbyte import Float4Tensor, IntxTensor, SubbyteTensor, UintxTensor

__all__ = [
    "ActivationDequantizeModule",
    "ActivationQuantizeModule",
    "CompressedWeight",
    "CompressionReport",
    "Float4Tensor",
    "IntxTensor",
    "PalettizeModule",
    "ScaledPalettizeModule",
    "Sensitivity",
    "SensitivityRow",
    "SparseModule",
    "Spec",
    "SubbyteTensor",
    "UintxTensor",
    "WeightDequantizeModule",
    "compress",
    "sensitivity",
    "wrap_for_parametrization",
]
