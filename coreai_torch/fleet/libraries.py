"""Models of `transformers`, `timm` and `torchvision` by name, with random weights."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import PlanError
from .checks import nearest

_TOKENS = 16  # of the example input of a language model
_PIXELS = 224  # of the example image, if the configuration does not say
_SAMPLES = 16_000  # of the example sound


def build(library: str, name: str, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a model with random weights, and example inputs by name."""
    return _BUILDERS[library](_imported(library), name, dict(config))


def _imported(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as cause:  # timm needs torchvision
        missing = (cause.name or library).partition(".")[0]
        what = "is not installed on the worker"
        if missing != library:
            what = f"cannot be imported on the worker: {cause}"
        raise PlanError(f"{library} {what}\n  try   pip install {missing}") from cause
    except RuntimeError as cause:  # a build of torchvision for another build of torch
        raise PlanError(
            f"{library} cannot be imported on the worker: {cause}\n"
            f"  try   install torch and {library} from the same index, such as "
            "https://download.pytorch.org/whl/cpu"
        ) from cause


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
    return model, _example(model, chosen)


def _example(model: Any, config: Any) -> dict[str, Any]:
    """Return example inputs of a `transformers` model; empty if its main input is unknown."""
    import torch

    def tokens() -> Any:
        vocabulary = config.get_text_config().vocab_size
        return torch.randint(0, vocabulary, (1, _TOKENS))

    def image() -> Any:
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", _PIXELS)
        sides = (size, size) if isinstance(size, int) else tuple(size)
        return torch.randn(1, getattr(vision, "num_channels", 3), *sides)

    def spectrum() -> Any:
        return torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)

    makers: dict[str, Callable[[], Any]] = {
        "input_ids": tokens,
        "pixel_values": image,
        "input_features": spectrum,
        "input_values": lambda: torch.randn(1, _SAMPLES),
    }
    names = [getattr(model, "main_input_name", "")]
    if hasattr(config, "vision_config") and hasattr(config, "text_config"):
        accepted = inspect.signature(model.forward).parameters
        names = [name for name in ("input_ids", "pixel_values") if name in accepted]
    if any(name not in makers for name in names):
        return {}
    example = {name: makers[name]() for name in names}
    if config.is_encoder_decoder:
        example["decoder_input_ids"] = tokens()
    return example


def _unknown(library: str, name: str, known: list[str]) -> PlanError:
    return PlanError(
        f"{library} has no model {name!r}{nearest(name, known)}\n"
        f"  try   use one of the {len(known)} names that {library} lists"
    )


_BUILDERS = {"timm": _timm, "torchvision": _torchvision, "transformers": _transformers}
