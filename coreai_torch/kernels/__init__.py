"""Metal kernels: a torch op with a torch reference that converts to an op with Metal source."""

from coreai.authoring import MetalParameter

from .metal import TorchMetalKernel
from .running import emulated, run_source

__all__ = ["MetalParameter", "TorchMetalKernel", "emulated", "run_source"]
