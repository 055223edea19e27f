"""What the families of vision-language models have in common, and which are supported.

The decoder of a bundle takes embeddings only. It needs to know which rows are image tokens, so each
row has `MARKER_WIDTH` more columns than the model's embeddings: the first is 1 for image tokens and
0 for text, the others are 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ....errors import ConversionError
from ..stacked_cache import compute_dtype
from .prompts import ImagePrompt

MARKER_WIDTH = 8  # 16 bytes, so that rows stay aligned


@dataclass(frozen=True)
class ImageShape:
    """The size of the image that the encoder takes, and the tokens that it becomes."""

    size: int
    patch: int
    tokens: int
    token_id: int


@dataclass
class Step:
    """The rows of one call of the decoder."""

    is_image: Tensor  # bool `[q]`
    offset: Any  # tokens in the cache before
    total: Any  # tokens in the cache after
    counts: Any  # reads and writes the number of image tokens up to each slot


class Family(ABC):
    """A model of one family with a fixed image size."""

    model_types: ClassVar[tuple[str, ...]]
    counts_images: ClassVar[bool] = False  # one more layer of the cache counts image tokens
    mean: ClassVar[list[float]] = [0.5] * 3  # normalization of pixels, unless a processor says so
    std: ClassVar[list[float]] = [0.5] * 3

    def __init__(self, model: Any, image_size: int | None) -> None:
        self.model, self.dtype = model, compute_dtype(model)
        self.image = self._image(model.config, image_size)

    @abstractmethod
    def _image(self, config: Any, size: int | None) -> ImageShape:
        """Return the sizes of the image."""

    @abstractmethod
    def features(self, pixels: Tensor) -> Tensor:
        """Return the features `[tokens, hidden]` of normalized pixels `[1, 3, size, size]`."""

    @abstractmethod
    def arguments(self, step: Step, dtype: torch.dtype) -> dict[str, Any]:
        """Return positions and masks of the rows of one call, as the model takes them."""

    def prompt(self, tokenizer: Any) -> ImagePrompt:
        """Return the text that stands for an image in a prompt."""
        token = str(tokenizer.convert_ids_to_tokens(self.image.token_id))
        return ImagePrompt(token, token)

    @abstractmethod
    def eager_inputs(self, tokens: Tensor, pixels: Tensor) -> dict[str, Any]:
        """Return the arguments of the model for tokens `[1, n]` and images `[images, 3, s, s]`."""


def check_size(size: int, step: int, model: Any) -> int:
    """Return the image size; raise unless patches and their merging divide it."""
    if not isinstance(size, int) or size < step or size % step:
        raise ConversionError(
            f"image_size is {size!r}; {type(model).__name__} needs a multiple of {step}\n"
            f"  try   pass image_size={max(step, int(size) // step * step)}"
        )
    return size


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
    from .gemma3 import Gemma3
    from .qwen_vl import QwenVL

    kind = model.config.model_type
    for family in (Gemma3, QwenVL):
        if kind in family.model_types:
            return family(model, image_size)
    known = ", ".join([*Gemma3.model_types, *QwenVL.model_types])
    raise ConversionError(
        f"{type(model).__name__} ({kind}) takes images in a form that bundles do not support\n"
        f"  try   export a model of the kinds {known}, or the language model alone"
    )
