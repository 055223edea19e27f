"""YOLO and RT-DETR of `ultralytics`, through its own `export(format="coreai")`.

The library exports, decomposes, converts and saves by itself, with the functions that it imports
from the converter; its asset is then judged like any other. It is installed in a folder outside
site-packages, like torchvision, because it requires another torch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from .row import Row, normal
from .torchvision_library import load

FOLDER = Path(sys.prefix) / "ultralytics"
_SIZE = 64


def _library() -> Any:
    """Import the library with package installation and network access disabled."""
    load()
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    folder = tempfile.mkdtemp()
    os.environ.update(
        YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true", YOLO_VERBOSE="false", YOLO_CONFIG_DIR=folder
    )
    import ultralytics

    return ultralytics


def _build(name: str, options: dict[str, Any], size: int = _SIZE) -> Any:
    from torch import nn

    library = _library()
    yolo = (library.RTDETR if name.startswith("rtdetr") else library.YOLO)(f"{name}.yaml")
    seen: list[Any] = []
    yolo.add_callback("on_export_end", seen.append)

    class Exported(nn.Module):
        """Export at the first call, after noise was added to the weights."""

        def __init__(self) -> None:
            super().__init__()
            self.model = yolo.model

        def forward(self, images: Any) -> Any:
            if not seen:
                folder = tempfile.mkdtemp()
                before = Path.cwd()
                os.chdir(folder)  # it writes to the current directory
                try:
                    self.asset = Path(folder, yolo.export(format="coreai", imgsz=size, **options))
                finally:
                    os.chdir(before)
            exporter = seen[0]
            return exporter.model(images.to(next(exporter.model.parameters()).dtype))

    return Exported()


def _row(
    name: str, family: str = "detection", called: str = "", batch: int = 1, **more: Any
) -> Row:
    options = {"batch": batch, **more.pop("options", {})}
    return Row(
        f"ultralytics_{called or name}",
        "ultralytics",
        family,
        lambda: _build(name, options),
        {"images": normal(batch, 3, _SIZE, _SIZE)},
        asset=lambda model: model.asset,
        source=(name, options),
        **more,
    )


def at_size(row: Row, size: int) -> Row:
    """Return a row for one image of another size."""
    assert row.source is not None
    name, options = row.source
    return replace(
        row,
        name=f"{row.name} {size}x{size}",
        build=lambda: _build(name, {**options, "batch": 1}, size),
        inputs={"images": normal(1, 3, size, size)},
    )


# With the initial weights, two scores differ by less than their error.
_SCORE_GAIN = 1.7
# By default the library exports all positions of the maps; with `nms=False`, the best of them:
# rows of a box, its score and its class.
_BEST = {"options": {"nms": False}, "ranked_by": 4}
_HALF = {
    "options": {"quantize": 16},
    "dtype": "float16",
    "tolerance": 5e-3,
    "because": "the library exports it in float16, where every op rounds to 11 bits",
}
ROWS = [
    _row("yolov5n"),
    _row("yolov8n", batch=2),
    _row("yolov8s-worldv2"),
    _row("yolov9t"),
    _row("yolov10n", called="yolov10n_best", gain=_SCORE_GAIN, **_BEST),
    _row("yolo11n"),
    _row("yolo11n", called="yolo11n_half", **_HALF),
    _row("yolo11n-seg", "segmentation"),
    _row("yolo11n-pose", "keypoints"),
    _row("yolo11n-obb"),
    _row("yolo11n-cls", "vision"),
    _row("yolo12n"),
    _row("yolo26n", called="yolo26n_best", **_BEST),
    _row("yolo26n-seg", "segmentation", called="yolo26n-seg_best", gain=_SCORE_GAIN, **_BEST),
    _row("yolo26n-pose", "keypoints", called="yolo26n-pose_best", gain=_SCORE_GAIN, **_BEST),
    _row("yolo26n-depth", "depth"),
    _row("rtdetr-l"),
]
