"""The families of vision-language models that bundles support."""

from __future__ import annotations

from typing import Any

from torch import nn

from ....errors import ConversionError
from .family import Family
from .gemma3 import Gemma3
from .qwen_vl import QwenVL


def is_vision_language(config: Any) -> bool:
    """Return whether a configuration has parts for images and for text."""
    has_text = getattr(config, "text_config", None) is not None
    return has_text and getattr(config, "vision_config", None) is not None


class _LanguagePart(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The language model, its embedding and its head; calls go to the complete model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.language_model, self.lm_head = model.model.language_model, model.lm_head
        self.complete = [model]  # a list, so that it is not a part

    def forward(self, **inputs: Any) -> Any:
        """Call the complete model."""
        return self.complete[0](**inputs)


def language_part(model: Any) -> nn.Module:
    """Return the modules that compression applies to: everything but the image encoder."""
    return _LanguagePart(model)


def family_of(model: Any, image_size: int | None) -> Family:
    """Return the family of a model; raise for those that are not supported."""
    kind = model.config.model_type
    for family in (Gemma3, QwenVL):
        if kind in family.model_types:
            return family(model, image_size)
    known = ", ".join([*Gemma3.model_types, *QwenVL.model_types])
    raise ConversionError(
        f"{type(model).__name__} ({kind}) takes images in a form that bundles do not support\n"
        f"  try   export a model of the kinds {known}, or the language model alone"
    )
