"""Converts PyTorch models to Core AI, and holds the numbers to eager PyTorch."""

from typing import TYPE_CHECKING, Any

from .converter import TorchConverter, get_decomp_table
from .externalize.spec import ExternalizeSpec
from .ir.composite import generate_composite_decl
from .kernels import MetalParameter, TorchMetalKernel

if TYPE_CHECKING:
    from .interpreter import to_torch
    from .pipeline import convert
    from .verification import verify

__version__ = "0.5.0"

__all__ = [
    "ExternalizeSpec",
    "MetalParameter",
    "TorchConverter",
    "TorchMetalKernel",
    "__version__",
    "convert",
    "generate_composite_decl",
    "get_decomp_table",
    "to_torch",
    "verify",
]

# Imported when they are asked for.
_LATE = {"convert": "pipeline", "to_torch": "interpreter", "verify": "verification"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LATE[name]}", __name__), name)
