"""Converts PyTorch models to Core AI, and holds the numbers to eager PyTorch.

Names are imported when they are asked for, so that `coreai-torch --help` need not wait for torch.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compression.compressing import compress
    from .converter import TorchConverter, get_decomp_table
    from .externalize.spec import ExternalizeSpec
    from .interpreter import to_torch
    from .ir.composite import generate_composite_decl
    from .kernels import MetalParameter, TorchMetalKernel
    from .pipeline import convert
    from .verification import verify

__version__ = "0.5.0"

__all__ = [
    "ExternalizeSpec",
    "MetalParameter",
    "TorchConverter",
    "TorchMetalKernel",
    "__version__",
    "compress",
    "convert",
    "generate_composite_decl",
    "get_decomp_table",
    "to_torch",
    "verify",
]

_HOME = {
    "ExternalizeSpec": "externalize.spec",
    "MetalParameter": "kernels",
    "TorchConverter": "converter",
    "TorchMetalKernel": "kernels",
    "compress": "compression.compressing",
    "convert": "pipeline",
    "generate_composite_decl": "ir.composite",
    "get_decomp_table": "converter",
    "to_torch": "interpreter",
    "verify": "verification",
}

# Exported programs hold the compression ops by name, and loading one asks for nothing of ours.
# The command alone waits until it needs torch: `coreai-torch --help` takes a tenth of a second.
_STARTED_BY = os.path.basename((getattr(sys, "argv", None) or [""])[0])  # none where embedded
if "torch" in sys.modules or _STARTED_BY != "coreai-torch":
    import_module(".compression.torch_ops", __name__)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if not name.startswith("__") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
