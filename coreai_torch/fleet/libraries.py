"""Models of `transformers`, `timm` and `torchvision` by name, with random weights."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from ..errors import PlanError
from .checks import nearest

_TOKENS = 16  # of the example input of a language model
_PIXELS = 224  # of the example image, if the configuration does not say


def build(library: str, name: str, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a model with random weights, and example inputs by name."""
    try:
        module = importlib.import_module(library)
    except ImportError as cause:
        raise PlanError(
            f"{library} is not installed on the worker\n  try   pip install {library}"
        ) from cause
    return _BUILDERS[library](module, name, dict(config))


def _timm(timm: Any, name: str, config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    import torch

    if not timm.is_model(name):
        raise _unknown("timm", name, timm.list_models())
    model = timm.create_model(name, pretrained=False, **config).eval()
    shape = model.default_cfg.get("input_size", (3, _PIXELS, _PIXELS))
    return model, {"x": torch.randn(1, *shape)}


def _torchvision(vision: Any, name: str, config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    import torch

    models = importlib.import_module("torchvision.models")
    if name not in models.list_models():
        raise _unknown("torchvision", name, models.list_models())
    builder = models.get_model_builder(name)
    if "weights_backbone" in inspect.signature(builder).parameters:
        config = {"weights_backbone": None, **config}  # else it is downloaded
    model = builder(weights=None, **config).eval()
    return model, {"x": torch.randn(1, 3, _PIXELS, _PIXELS)}


def _transformers(library: Any, name: str, config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Build `bert`, a type of model, or `BertForMaskedLM`, a class."""
    import torch

    if hasattr(library, name) and hasattr(getattr(library, name), "config_class"):
        model_class = getattr(library, name)
        chosen = model_class.config_class(**config)
        model = model_class(chosen).eval()
    else:
        known = library.models.auto.configuration_auto.CONFIG_MAPPING
        if name not in known:
            raise _unknown("transformers", name, list(known))
        chosen = library.AutoConfig.for_model(name, **config)
        model = library.AutoModel.from_config(chosen).eval()
    model.config.use_cache = False  # its values would be outputs
    main = getattr(model, "main_input_name", "")
    if main == "input_ids":
        return model, {main: torch.randint(0, chosen.vocab_size, (1, _TOKENS))}
    if main == "pixel_values":
        size = getattr(chosen, "image_size", _PIXELS)
        channels = getattr(chosen, "num_channels", 3)
        return model, {main: torch.randn(1, channels, size, size)}
    return model, {}


def _unknown(library: str, name: str, known: list[str]) -> PlanError:
    return PlanError(
        f"{library} has no model {name!r}{nearest(name, known)}\n"
        f"  try   use one of the {len(known)} names that {library} lists"
    )


_BUILDERS = {"timm": _timm, "torchvision": _torchvision, "transformers": _transformers}
