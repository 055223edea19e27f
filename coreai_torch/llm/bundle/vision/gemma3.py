"""Gemma 3: a SigLIP encoder, and a decoder in which the tokens of an image see each other."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ....errors import ConversionError
from .family import Family, ImageShape, Step
from .prompts import ImagePrompt


class Gemma3(Family):
    """`Gemma3ForConditionalGeneration`."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma3",)

    def _image(self, config: Any, size: int | None) -> ImageShape:
        vision = config.vision_config
        if size not in (None, vision.image_size):
            raise ConversionError(
                f"image_size is {size!r}; {type(self.model).__name__} has a table of positions for "
                f"{vision.image_size}\n  try   pass image_size={vision.image_size}, or leave it out"
            )
        return ImageShape(
            vision.image_size, vision.patch_size, config.mm_tokens_per_image, config.image_token_id
        )

    def features(self, pixels: Tensor) -> Tensor:
        """Return the features `[tokens, hidden]` of normalized pixels `[1, 3, size, size]`."""
        output = self.model.get_image_features(pixels.to(self.dtype), return_dict=True)
        return torch.as_tensor(output.pooler_output[0])

    def arguments(self, step: Step, dtype: torch.dtype) -> dict[str, Any]:
        """Return positions, and masks in which each row sees the complete image it is part of.

        An image must be in one call: its rows cannot see rows of a later call.
        """
        config = self.model.config.get_text_config()
        query = torch.arange(step.is_image.shape[0]) + step.offset
        key = torch.arange(step.total)
        visible = (key[None] <= query[:, None]) | self._same_image(step, query)
        near = key[None] > query[:, None] - config.sliding_window
        masks = {"full_attention": visible, "sliding_attention": visible & near}
        return {
            "position_ids": query[None],
            "attention_mask": {
                name: self._as_mask(one[None, None], dtype) for name, one in masks.items()
            },
        }

    @staticmethod
    def _same_image(step: Step, query: Tensor) -> Tensor:
        """Return which rows `[q]` and slots `[total]` belong to one run of image tokens."""
        marks = torch.nn.functional.pad(step.is_image.int(), (step.offset, 0))
        before = torch.nn.functional.pad(marks, (1, 0))[:-1]
        starts = marks * (1 - before)
        block = torch.cumsum(starts, 0, dtype=torch.int32) * marks  # 0 is text
        own = block.index_select(0, query)
        return (own[:, None] == block[None]) & (own[:, None] > 0)

    def _as_mask(self, visible: Tensor, dtype: torch.dtype) -> Tensor:
        if self.model.config.get_text_config()._attn_implementation != "eager":
            return visible
        hidden = torch.finfo(dtype).min
        return torch.where(visible, torch.zeros((), dtype=dtype), hidden)

    def prompt(self, tokenizer: Any) -> ImagePrompt:
        """Return the text that stands for an image: its start token, as in the processor."""
        config, known = self.model.config, set(tokenizer.get_vocab().values())
        token = str(tokenizer.convert_ids_to_tokens(self.image.token_id))
        ends = (config.boi_token_index, config.eoi_token_index)
        if not known.issuperset(ends):
            return ImagePrompt(token, token)
        start, end = map(str, tokenizer.convert_ids_to_tokens(list(ends)))
        return ImagePrompt(token, start, f"\n\n{start}", f"{end}\n\n")

    def eager_inputs(self, tokens: Tensor, pixels: Tensor) -> dict[str, Any]:
        """Return the arguments of the model for tokens `[1, n]` and images `[images, 3, s, s]`."""
        kinds = (tokens == self.image.token_id).long()
        return {
            "input_ids": tokens,
            "pixel_values": pixels.to(self.dtype),
            "token_type_ids": kinds,
        }
