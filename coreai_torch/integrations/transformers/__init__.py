"""The backend `coreai` of `transformers.exporters`: export, save, load and run models."""

from importlib.util import find_spec

if find_spec("transformers") is None or find_spec("transformers.exporters") is None:
    raise ImportError(
        "coreai_torch.integrations.transformers needs transformers.exporters of transformers 5.23\n"
        "  try   pip install 'coreai-torch[transformers]'"
    )

from .config import CoreAIConfig
from .exporter import CoreAIExporter, register
from .generation import generate
from .quantizer import CoreAIQuantizer
from .runner import CoreAIModelRunner

__all__ = [
    "CoreAIConfig",
    "CoreAIExporter",
    "CoreAIModelRunner",
    "CoreAIQuantizer",
    "generate",
    "register",
]
