"""Qwen2-VL and Qwen2.5-VL: patches in blocks, and positions of time, height and width.

The positions after an image depend on the number of image tokens before, which the inputs of the
decoder do not contain. One more layer of the key cache stores this number for each slot, as digits
that float16 and bfloat16 represent exactly.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .family import Family, ImageShape, Step, check_size

DEFAULT_SIZE = 448
_BASE, _DIGITS = 128, 3


class QwenVL(Family):
    """`Qwen2VLForConditionalGeneration` and `Qwen2_5_VLForConditionalGeneration`."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2_vl", "qwen2_5_vl")
    counts_images: ClassVar[bool] = True
    mean: ClassVar[list[float]] = [0.48145466, 0.4578275, 0.40821073]
    std: ClassVar[list[float]] = [0.26862954, 0.26130258, 0.27577711]

    def _image(self, config: Any, size: int | None) -> ImageShape:
        vision = config.vision_config
        step = vision.patch_size * vision.spatial_merge_size
        chosen = max(DEFAULT_SIZE // step, 1) * step if size is None else size
        self.side = check_size(chosen, step, self.model) // step  # tokens in a row of the image
        self.grid = torch.tensor([[1, chosen // vision.patch_size, chosen // vision.patch_size]])
        self.layout = self._layout(vision)
        return ImageShape(chosen, vision.patch_size, self.side**2, config.image_token_id)

    def patches(self, pixels: Tensor) -> Tensor:
        """Return an image `[1, 3, size, size]` as rows of patches, in the order of the processor.

        The patches of one token follow each other. A still image is repeated in time.
        """
        vision = self.model.config.vision_config
        merge, patch, side = vision.spatial_merge_size, vision.patch_size, self.side
        blocks = pixels.reshape(3, side, merge, patch, side, merge, patch)
        rows = blocks.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, 1, patch * patch)
        return rows.expand(-1, -1, vision.temporal_patch_size, -1).reshape(rows.shape[0], -1)

    def features(self, pixels: Tensor) -> Tensor:
        """Return the features `[tokens, hidden]` of normalized pixels `[1, 3, size, size]`."""
        rows = self.patches(pixels).to(self.dtype)
        # Given precomputed layouts, the encoder does not read the values of `grid_thw`.
        output = self.model.model.visual(rows, grid_thw=self.grid, **self.layout)
        return torch.as_tensor(output.pooler_output)

    def _layout(self, vision: Any) -> dict[str, Any]:
        """Return what the encoder would compute from `grid_thw`, as constants."""
        from transformers import vision_utils

        grid, merge = self.grid, vision.spatial_merge_size
        layout = {
            "position_ids": vision_utils.get_vision_position_ids(grid, merge),
            # NumPy, because the encoder splits by these lengths while it is traced.
            "cu_seqlens": vision_utils.get_vision_cu_seqlens(grid).numpy(),
        }
        if hasattr(vision, "fullatt_block_indexes"):
            index, lengths = vision_utils.get_vision_window_index(
                grid, merge, vision.window_size, vision.patch_size
            )
            layout |= {"window_index": index, "cu_window_seqlens": np.asarray(lengths)}
        return layout

    def arguments(self, step: Step, dtype: torch.dtype) -> dict[str, Any]:
        """Return the positions `[3, 1, q]` of the rows; update the counts of image tokens."""
        marks = step.is_image.int()
        before = _number(step.counts.previous()) + torch.cumsum(marks, 0, dtype=torch.int32) - marks
        step.counts.write(_as_digits(before + marks, dtype))
        texts = torch.arange(marks.shape[0]) + step.offset - before
        start = texts + before // self.image.tokens * self.side
        inside = before % self.image.tokens * marks
        positions = [start, start + inside // self.side, start + inside % self.side]
        return {"position_ids": torch.stack(positions)[:, None].long()}

    def eager_inputs(self, tokens: Tensor, pixels: Tensor) -> dict[str, Any]:
        """Return the arguments of the model for tokens `[1, n]` and images `[images, 3, s, s]`."""
        rows = torch.cat([self.patches(one[None]) for one in pixels])
        return {
            "input_ids": tokens,
            "pixel_values": rows.to(self.dtype),
            "image_grid_thw": self.grid.expand(len(pixels), -1),
            "mm_token_type_ids": (tokens == self.image.token_id).int(),
        }


def _number(digits: Tensor) -> Tensor:
    """Return the number of digits `[1, 3]`, the lowest first."""
    weights = torch.tensor([_BASE**power for power in range(_DIGITS)], dtype=torch.int32)
    return (digits.to(torch.int32) * weights).sum(-1, dtype=torch.int32)


def _as_digits(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the digits `[q, 3]` of numbers `[q]`."""
    digits = [numbers // _BASE**power % _BASE for power in range(_DIGITS)]
    return torch.stack(digits, -1).to(dtype)
