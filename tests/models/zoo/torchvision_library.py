"""Load torchvision from its own folder; with a CPU build of torch, its ops are Python functions.

The wheel on PyPI is linked to CUDA: with a CPU build of torch its ops fail to load, importing it
fails, and so does every library that imports it if it is installed. So it is installed in a folder
outside site-packages, and only the child processes that build a model with it see it. The ops are
loops written from the documentation of torchvision, independent of the converter: eager torch runs
them as the reference. With a CUDA build of torch its own ops load and are the reference; defining
them twice would abort the process.
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
    if str(FOLDER) in sys.path:
        return
    sys.path.append(str(FOLDER))
    if torch.version.cuda is None:
        _define_ops()
    import torchvision.extension

    torchvision.extension._has_ops = lambda: True


def _define_ops() -> None:
    global _library
    _library = torch.library.Library("torchvision", "FRAGMENT")
    functions = {"nms": nms, "roi_align": roi_align}
    for name, schema in _SCHEMAS.items():
        if hasattr(torch.ops.torchvision, name):  # a test has defined it
            continue
        _library.define(name + schema)
        if name in functions:
            _library.impl(name, functions[name], "CPU")


def models(path: str) -> Any:
    """Import a module by its path below `torchvision.models`."""
    load()
    return importlib.import_module(f"torchvision.models{'.' * bool(path)}{path}")


def ops() -> Any:
    load()
    return importlib.import_module("torchvision.ops")


def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Keep the box with the best score, remove those that overlap it, and repeat."""
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
    return shared / union if union else math.nan  # two points never exceed a threshold


def roi_align(
    input: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    """Return the mean of the bilinear samples of each bin."""
    shift = 0.5 if aligned else 0.0
    result = input.new_zeros(len(rois), input.shape[1], pooled_height, pooled_width)
    for number, (index, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (c * spatial_scale - shift for c in corners)
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        image = input[int(index)]
        for row in range(pooled_height):
            for column in range(pooled_width):
                for i in range(sampling_ratio):
                    y = y1 + (row + (i + 0.5) / sampling_ratio) * height / pooled_height
                    for j in range(sampling_ratio):
                        x = x1 + (column + (j + 0.5) / sampling_ratio) * width / pooled_width
                        result[number, :, row, column] += _bilinear(image, y, x)
    return result / sampling_ratio**2


def _bilinear(image: torch.Tensor, y: float, x: float) -> torch.Tensor:
    height, width = image.shape[1:]
    if y < -1 or y > height or x < -1 or x > width:
        return torch.zeros(image.shape[0])
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    top, left = int(y), int(x)
    below, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    upper = image[:, top, left] * (1 - u) + image[:, top, right] * u
    lower = image[:, below, left] * (1 - u) + image[:, below, right] * u
    return upper * (1 - v) + lower * v
