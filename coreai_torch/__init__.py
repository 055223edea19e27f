"""Converts PyTorch models to Core AI, and holds the numbers to eager PyTorch."""

from .converter import TorchConverter, get_decomp_table
from .externalize.spec import ExternalizeSpec
from .ir.composite import generate_composite_decl
from .kernels import MetalParameter, TorchMetalKernel

__version__ = "0.5.0"

__all__ = [
    "ExternalizeSpec",
    "MetalParameter",
    "TorchConverter",
    "TorchMetalKernel",
    "__version__",
    "generate_composite_decl",
    "get_decomp_table",
]
