"""Convert PyTorch models to Core AI, and check the numbers against eager PyTorch.

Names are imported on first use, so that `coreai-torch --help` does not import torch.
"""

from . import _console_script  # noqa: F401, I001  first: it makes Ctrl-C silent

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._import_hook import after_import

if TYPE_CHECKING:
    from .api import convert, prepare
    from .asset.loaded import load
    from .asset.metadata import read_metadata
    from .compression.compressing import compress
    from .compression.measuring import sensitivity
    from .converter import TorchConverter, get_decomp_table
    from .interpreter import to_torch
    from .ir.composite import generate_composite_decl
    from .kernels import MetalParameter, TorchMetalKernel
    from .passes.externalize.spec import ExternalizeSpec
    from .ports import ImageInput, Ports
    from .precision import Precision
    from .surgery import load_parts, split
    from .swift import swift_source
    from .targets import Target
    from .targets.lint import lint
    from .verification import verify

__version__ = "0.5.0"

__all__ = [
    "ExternalizeSpec",
    "ImageInput",
    "MetalParameter",
    "Ports",
    "Precision",
    "Target",
    "TorchConverter",
    "TorchMetalKernel",
    "__version__",
    "compress",
    "convert",
    "generate_composite_decl",
    "get_decomp_table",
    "lint",
    "load",
    "load_parts",
    "prepare",
    "read_metadata",
    "sensitivity",
    "split",
    "swift_source",
    "to_torch",
    "verify",
]

_HOME = {
    "ExternalizeSpec": "passes.externalize.spec",
    "ImageInput": "ports",
    "MetalParameter": "kernels",
    "Ports": "ports",
    "Precision": "precision",
    "Target": "targets",
    "TorchConverter": "converter",
    "TorchMetalKernel": "kernels",
    "compress": "compression.compressing",
    "convert": "api",
    "generate_composite_decl": "ir.composite",
    "get_decomp_table": "converter",
    "lint": "targets.lint",
    "load": "asset.loaded",
    "prepare": "api",
    "sensitivity": "compression.measuring",
    "load_parts": "surgery",
    "read_metadata": "asset.metadata",
    "split": "surgery",
    "swift_source": "swift",
    "to_torch": "interpreter",
    "verify": "verification",
    # of the published converter 0.4.3, for quantizers
    "_patch_model_for_externalization": "compat.externalization",
    "_subexport_and_restore": "compat.externalization",
}

# Packages that users name, for the hint about a misspelled one.
_SUBMODULES = (
    "composite_ops",
    "compression",
    "debugging",
    "errors",
    "integrations",
    "interpreter",
    "ir",
    "kernels",
    "linting",
    "llm",
    "lowering",
    "precision",
    "recognition",
    "report",
    "supported_ops",
    "verification",
)

# A saved `.pt2` refers to the compression ops by name, so they must be registered before one is
# loaded. Importing torch here would make `coreai-torch --help` take seconds.
after_import("torch", f"{__name__}.compression.torch_ops")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(_module(_HOME[name]), name)
    if not name.startswith("__") and find_spec(f"{__name__}.{name}") is not None:
        return _module(name)
    from .errors import unknown_attribute

    raise unknown_attribute(__name__, name, [*__all__, *_SUBMODULES])


def _module(name: str) -> ModuleType:
    """Import a module of this package; an AttributeError inside it becomes an ImportError.

    Python calls `hasattr` for `from . import ops`, which swallows an AttributeError. The user would
    see "aten::add already has a lowering", the error of a second import of `ops`, instead of the
    first error.
    """
    try:
        return import_module(f".{name}", __name__)
    except AttributeError as cause:
        raise ImportError(f"{__name__}.{name}: {cause}", name=f"{__name__}.{name}") from cause


def __dir__() -> list[str]:
    return sorted(__all__)
