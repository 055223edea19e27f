"""Models of `torchvision`: classification, detection up to NMS, segmentation, video, flow."""

from __future__ import annotations

from typing import Any

from . import torchvision_library
from .row import Open, Row, Tensor, normal, uniform


def _build(path: str, keywords: dict[str, Any]) -> Any:
    torchvision_library.load()
    import importlib

    module, _, name = path.rpartition(".")
    models = importlib.import_module(f"torchvision.models{'.' + module if module else ''}")
    return getattr(models, name)(weights=None, **keywords)


def _row(
    path: str,
    inputs: dict[str, Tensor],
    family: str = "vision",
    more: dict[str, Any] | None = None,
    **keywords: Any,
) -> Row:
    name = f"torchvision_{path.rpartition('.')[2]}"
    return Row(name, "torchvision", family, lambda: _build(path, keywords), inputs, **(more or {}))


def _picture(path: str, size: int = 64, batch: int = 1, **more: Any) -> Row:
    return _row(path, {"x": normal(batch, 3, size, size)}, num_classes=10, **more)


def _segmentation(path: str, **more: Any) -> Row:
    inputs = {"x": normal(1, 3, 64, 64)}
    return _row(path, inputs, "segmentation", num_classes=5, weights_backbone=None, **more)


def _video(path: str, *size: int, **more: Any) -> Row:
    return _row(path, {"x": normal(1, 3, *size)}, "video", num_classes=10, **more)


def _flow(path: str, size: int) -> Row:
    inputs = {"image1": uniform(1, 3, size, size), "image2": uniform(1, 3, size, size)}
    return _row(path, inputs, "optical flow")


def _detector(name: str, keywords: dict[str, Any]) -> Any:
    """The detector takes a list of pictures and gives a list of dictionaries."""
    from torch import nn

    model = _build(f"detection.{name}", {"weights_backbone": None, "num_classes": 5, **keywords})

    class OnePicture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model([x])[0]

    return OnePicture()


def _detection(name: str, size: int, more: dict[str, Any] | None = None, **keywords: Any) -> Row:
    return Row(
        f"torchvision_{name}",
        "torchvision",
        "detection",
        lambda: _detector(name, {"min_size": size, "max_size": size, **keywords}),
        {"x": uniform(3, size, size)},
        **(more or {}),
    )


_OPEN = {"open": Open({"x": (0, 2, 3)}, {"x": normal(3, 3, 96, 64)})}

ROWS = [
    _picture("resnet18", batch=2, more=_OPEN),
    _picture("alexnet"),
    _picture("vgg11"),
    _picture("squeezenet1_1"),
    _picture("densenet121"),
    _picture("googlenet", 64, init_weights=False),
    _picture("inception_v3", 128, init_weights=False),
    _picture("mobilenet_v2"),
    _picture("mobilenet_v3_small"),
    _picture("shufflenet_v2_x0_5"),
    _picture("mnasnet0_5"),
    _picture("efficientnet_b0"),
    _picture("efficientnet_v2_s"),
    _picture("regnet_y_400mf"),
    _picture("resnext50_32x4d"),
    _picture("wide_resnet50_2"),
    _picture("convnext_tiny"),
    _picture("vit_b_32", 64, image_size=64),
    _picture("swin_t"),
    _picture("swin_v2_t"),
    _row("maxvit_t", {"x": normal(1, 3, 224, 224)}, num_classes=10),
    _segmentation("segmentation.fcn_resnet50"),
    _segmentation("segmentation.deeplabv3_mobilenet_v3_large"),
    _segmentation("segmentation.lraspp_mobilenet_v3_large"),
    _video("video.r3d_18", 8, 32, 32),
    _video("video.mc3_18", 8, 32, 32),
    _video("video.r2plus1d_18", 8, 32, 32),
    _video("video.s3d", 16, 64, 64),
    _video("video.mvit_v2_s", 16, 224, 224),
    _video("video.swin3d_t", 4, 32, 32),
    _flow("optical_flow.raft_small", 128),
    _flow("optical_flow.raft_large", 128),
    _detection(
        "fasterrcnn_mobilenet_v3_large_320_fpn",
        96,
        rpn_post_nms_top_n_test=20,
        rpn_pre_nms_top_n_test=50,
        box_detections_per_img=10,
    ),
    _detection(
        "fasterrcnn_resnet50_fpn",
        96,
        rpn_post_nms_top_n_test=20,
        rpn_pre_nms_top_n_test=50,
        box_detections_per_img=10,
    ),
    _detection(
        "maskrcnn_resnet50_fpn",
        96,
        rpn_post_nms_top_n_test=20,
        rpn_pre_nms_top_n_test=50,
        box_detections_per_img=5,
    ),
    _detection(
        "keypointrcnn_resnet50_fpn",
        96,
        rpn_post_nms_top_n_test=20,
        rpn_pre_nms_top_n_test=50,
        box_detections_per_img=5,
        num_classes=2,
    ),
    _detection("retinanet_resnet50_fpn", 96, topk_candidates=50, detections_per_img=10),
    _detection("fcos_resnet50_fpn", 96, topk_candidates=50, detections_per_img=10),
    Row(
        "torchvision_ssdlite320_mobilenet_v3_large",
        "torchvision",
        "detection",
        lambda: _detector(
            "ssdlite320_mobilenet_v3_large", {"topk_candidates": 50, "detections_per_img": 10}
        ),
        {"x": uniform(3, 320, 320)},
    ),
]
