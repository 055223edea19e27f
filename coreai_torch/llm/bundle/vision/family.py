"""What the families of vision-language models have in common.

The decoder of a bundle takes embeddings only. It needs to know which rows are image tokens, so each
row has `MARKER_WIDTH` more columns than the model's embeddings: the first is 1 for image tokens and
0 for text, the others are 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ....errors import ConversionError
from ..reference import compute_dtype
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
