"""Read images and prepare them as the engine does: resize, rescale, normalize."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import GenerationError

STRATEGY = "stretch"


def to_pixels(image: Any, vision: Mapping[str, Any]) -> Tensor:
    """Return normalized pixels `[1, 3, size, size]`.

    A file, a PIL image and uint8 values `[height, width, 3]` are resized and normalized. Floating
    point values `[3, size, size]` are taken as they are.
    """
    size = vision["image_size"]
    if isinstance(image, Tensor) and image.is_floating_point():
        pixels = image.float().reshape(-1, *image.shape[-3:])
        if tuple(pixels.shape) != (1, 3, size, size):
            raise GenerationError(
                f"the image has the shape {list(image.shape)}, not {[3, size, size]}\n"
                "  try   pass a PIL image, which is resized"
            )
        return pixels
    picture = _picture(image).convert("RGB").resize((size, size), resample=3)  # bicubic
    values = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)
    values = values * vision.get("rescale_factor", 1 / 255)
    mean = torch.tensor(vision.get("image_mean", [0.5] * 3)).reshape(3, 1, 1)
    std = torch.tensor(vision.get("image_std", [0.5] * 3)).reshape(3, 1, 1)
    return ((values - mean) / std)[None]


def _picture(image: Any) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise GenerationError(
            "images need Pillow, which is not installed\n  try   pip install pillow"
        ) from error
    if isinstance(image, str | Path):
        return Image.open(image)
    if isinstance(image, Image.Image):
        return image
    values = np.asarray(image)
    if values.dtype != np.uint8 or values.ndim != 3 or values.shape[2] != 3:
        raise GenerationError(
            f"the image is {values.dtype} of shape {list(values.shape)}\n"
            "  try   pass a PIL image, a file, or uint8 values [height, width, 3]"
        )
    return Image.fromarray(values)


def normalization(processor: Any) -> dict[str, Any]:
    """Return the keys of the metadata that an image processor, or its configuration, sets."""
    found = {}
    for name in ("image_mean", "image_std", "rescale_factor"):
        value = processor.get(name) if isinstance(processor, Mapping) else None
        value = getattr(processor, name, None) if value is None else value
        if value is not None:
            found[name] = list(value) if name != "rescale_factor" else float(value)
    return found
