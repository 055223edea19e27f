"""Images as cameras, data loaders and tiled models handle them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .real_inputs import Call


def _bytes(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def _resized(mode: str, **keywords: Any) -> Call:
    """Resize an image of bytes, channels last, to the size of a classifier."""
    return (
        lambda x: functional.interpolate(x.permute(0, 3, 1, 2), (224, 224), mode=mode, **keywords),
        (_bytes(1, 480, 640, 3),),
    )


def _pasted() -> Call:
    def run(picture: Tensor, patch: Tensor) -> Tensor:
        picture = picture.clone()
        picture[:, 100:164, 200:264] = patch
        return picture

    return run, (torch.randn(3, 480, 640), torch.randn(3, 64, 64))


def _blended() -> Call:
    """Add overlapping tiles, as tiled super-resolution does."""

    def run(tiles: Tensor, weight: Tensor) -> Tensor:
        total, weights = torch.zeros(3, 1_024, 1_024), torch.zeros(1_024, 1_024)
        for row in range(5):
            for column in range(5):
                top, left = row * 192, column * 192
                total[:, top : top + 256, left : left + 256] += tiles[row, column] * weight
                weights[top : top + 256, left : left + 256] += weight
        return total / weights

    return run, (torch.randn(5, 5, 3, 256, 256), torch.rand(256, 256) + 0.1)


def _shifted(x: Tensor) -> Tensor:
    """Move a part of the channels one frame back and one forward."""
    later = functional.pad(x[1:, :8], (0, 0, 0, 0, 0, 0, 0, 1))
    earlier = functional.pad(x[:-1, 8:16], (0, 0, 0, 0, 0, 0, 1, 0))
    return torch.cat([later, earlier, x[:, 16:]], 1)


PIXELS: dict[str, Callable[[], Call]] = {
    "interpolate bytes bilinear 480x640 to 224": lambda: _resized("bilinear"),
    "interpolate bytes bicubic 480x640 to 224": lambda: _resized("bicubic"),
    "interpolate bytes bilinear antialias to 224": lambda: _resized("bilinear", antialias=True),
    "interpolate bytes bicubic antialias to 224": lambda: _resized("bicubic", antialias=True),
    "interpolate bilinear antialias 1,080x1,920 to 360x640": lambda: (
        lambda x: functional.interpolate(x, (360, 640), mode="bilinear", antialias=True),
        (torch.randn(1, 3, 1_080, 1_920),),
    ),
    "pad bytes 480x640 to 640x640": lambda: (
        lambda x: functional.pad(x, (0, 0, 80, 80), value=114),
        (_bytes(1, 3, 480, 640),),
    ),
    "pad to a multiple of 32 of 427x640x3 dynamic": lambda: (
        lambda x: functional.pad(x, (0, 0, 0, 0, 0, -x.shape[0] % 32)),
        (torch.randn(427, 640, 3),),
    ),
    "flip bytes 3x640x640": lambda: (lambda x: x.flip(-1), (_bytes(3, 640, 640),)),
    "flip channels 3x640x640": lambda: (lambda x: x.flip(1), (torch.randn(1, 3, 640, 640),)),
    "flip 1M": lambda: (lambda x: x.flip(0), (torch.randn(1_000_000),)),
    "flip 512x128 dynamic": lambda: (lambda x: x.flip(0), (torch.randn(512, 8, 128),)),
    "rotate bytes 640x640x3": lambda: (lambda x: torch.rot90(x, 3, (0, 1)), (_bytes(640, 640, 3),)),
    "roll 64x64x96 dynamic": lambda: (
        lambda x: x.roll((-4, -4), (0, 1)),
        (torch.randn(64, 64, 96),),
    ),
    "paste 64x64 in 3x480x640": _pasted,
    "blend 25 tiles of 3x256x256": _blended,
    "cat 16 and 48 channels of 56x56": lambda: (
        lambda x, y: torch.cat([x, y], 1),
        (torch.randn(8, 16, 56, 56), torch.randn(8, 48, 56, 56)),
    ),
    "temporal shift 8x64x56x56": lambda: (_shifted, (torch.randn(8, 64, 56, 56),)),
}
