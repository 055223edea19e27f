"""Metal kernels: a torch op with a reference in torch, a Core AI op with the source in Metal."""

from coreai.authoring import MetalParameter

from .metal import TorchMetalKernel
from .running import emulated, run_source

__all__ = ["MetalParameter", "TorchMetalKernel", "emulated", "run_source"]
