"""Metal kernels, under the module name that other programs import."""

from .kernels import MetalParameter, TorchMetalKernel

__all__ = ["MetalParameter", "TorchMetalKernel"]
