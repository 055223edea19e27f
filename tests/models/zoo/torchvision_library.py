"""Loads torchvision from where it does no harm, with its own ops written out.

The wheel on PyPI is linked to CUDA: with a CPU build of torch its ops do not load and importing
it fails, and with it every library that imports it when it is there. So it is installed beside
the environment's packages, and only the children that build a model with it see it. The ops are
written here as torchvision documents them, loop by loop: they are what eager torch runs, and not
what the converter puts in their place.
"""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(sys.prefix) / "torchvision"
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
}
_library: Any = None


def load() -> None:
    """Make `import torchvision` work."""
    global _library
    if _library is not None:
        return
    sys.path.append(str(FOLDER))
    _library = torch.library.Library("torchvision", "DEF")
    for name, schema in _SCHEMAS.items():
        _library.define(name + schema)
    _library.impl("nms", nms, "CPU")
    _library.impl("roi_align", roi_align, "CPU")
    import torchvision.extension

    torchvision.extension._has_ops = lambda: True


def models(path: str) -> Any:
    """A module of the library, by its path below `torchvision.models`."""
    load()
    return importlib.import_module(f"torchvision.models{'.' * bool(path)}{path}")


def ops() -> Any:
    load()
    return importlib.import_module("torchvision.ops")


def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """The best box stays and takes away what overlaps it too much; then the next best."""
    left = scores.argsort(descending=True, stable=True).tolist()
    kept: list[int] = []
    while left:
        best = left.pop(0)
        kept.append(best)
        left = [i for i in left if not _overlap(dets[best], dets[i]) > iou_threshold]
    return torch.tensor(kept, dtype=torch.int64)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> float:
    x1, y1, x2, y2 = a.tolist()
    u1, v1, u2, v2 = b.tolist()
    shared = max(min(x2, u2) - max(x1, u1), 0.0) * max(min(y2, v2) - max(y1, v1), 0.0)
    union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - shared
    return shared / union if union else math.nan  # two points overlap no more than any threshold


def roi_align(
    input: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    """The mean of the samples of each bin; samples lie between places."""
    shift = 0.5 if aligned else 0.0
    result = input.new_zeros(len(rois), input.shape[1], pooled_height, pooled_width)
    for number, (index, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (c * spatial_scale - shift for c in corners)
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        picture = input[int(index)]
        for row in range(pooled_height):
            for column in range(pooled_width):
                for i in range(sampling_ratio):
                    y = y1 + (row + (i + 0.5) / sampling_ratio) * height / pooled_height
                    for j in range(sampling_ratio):
                        x = x1 + (column + (j + 0.5) / sampling_ratio) * width / pooled_width
                        result[number, :, row, column] += _between(picture, y, x)
    return result / sampling_ratio**2


def _between(picture: torch.Tensor, y: float, x: float) -> torch.Tensor:
    height, width = picture.shape[1:]
    if y < -1 or y > height or x < -1 or x > width:
        return torch.zeros(picture.shape[0])
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    top, left = int(y), int(x)
    below, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    upper = picture[:, top, left] * (1 - u) + picture[:, top, right] * u
    lower = picture[:, below, left] * (1 - u) + picture[:, below, right] * u
    return upper * (1 - v) + lower * v
