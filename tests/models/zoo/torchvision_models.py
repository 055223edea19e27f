"""Models of `torchvision`: classification, segmentation, video, optical flow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .row import Dynamic, Row, Tensor, normal, uniform
from .torchvision_library import models


def _build(path: str, keywords: dict[str, Any]) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(models(module), name)(**keywords)


def _row(
    name: str,
    family: str,
    inputs: dict[str, Tensor],
    build: Callable[[], Any],
    **more: Any,
) -> Row:
    return Row(f"torchvision_{name}", "torchvision", family, build, inputs, **more)


def _picture(path: str, batch: int = 1, *, more: Any = None, **keywords: Any) -> Row:
    keywords = {"num_classes": 10, **keywords}
    inputs = {"x": normal(batch, 3, 64, 64)}
    return _row(path.lower(), "vision", inputs, lambda: _build(path, keywords), **(more or {}))


def _segmentation(name: str, argument: str) -> Row:
    keywords = {"num_classes": 5, "weights_backbone": None}
    inputs = {argument: normal(1, 3, 64, 64)}
    return _row(name, "segmentation", inputs, lambda: _build(f"segmentation.{name}", keywords))


def _video(name: str, build: Callable[[], Any]) -> Row:
    return _row(name, "video", {"x": normal(1, 3, 4, 32, 32)}, build)


def _flow(name: str) -> Row:
    inputs = {"image1": uniform(1, 3, 128, 128), "image2": uniform(1, 3, 128, 128)}
    build = partial(_build, f"optical_flow.{name}", {})
    return _row(name, "optical flow", inputs, build, flags={"num_flow_updates": 2})


def _convnext() -> Any:
    convnext = models("convnext")
    stages = [convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 2)]
    return convnext.ConvNeXt(stages, num_classes=10)


def _swin(version: int) -> Any:
    swin = models("swin_transformer")
    parts: dict[str, Any] = {"num_classes": 10}
    if version == 2:
        parts |= {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2}
    return swin.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], **parts)


def _maxvit() -> Any:
    return models("maxvit").MaxVit(
        (64, 64), 16, 2, [16, 24], [1, 1], head_dim=8, stochastic_depth_prob=0.0, num_classes=10
    )


def _slices() -> Any:
    """Return a video ResNet with one block in each stage."""
    resnet = models("video.resnet")
    makers = [resnet.Conv3DSimple] * 4
    return resnet.VideoResNet(resnet.BasicBlock, makers, [1, 1, 1, 1], resnet.BasicStem, 10)


def _swin3d() -> Any:
    swin = models("video.swin_transformer")
    return swin.SwinTransformer3d([2, 4, 4], 16, [2, 2], [2, 4], [2, 4, 4], num_classes=10)


def _mvit() -> Any:
    mvit = models("video.mvit")
    block = partial(mvit.MSBlockConfig, kernel_q=[3, 3, 3], kernel_kv=[3, 3, 3])
    stages = [
        block(1, 8, 16, stride_q=[1, 1, 1], stride_kv=[1, 4, 4]),
        block(2, 16, 16, stride_q=[1, 2, 2], stride_kv=[1, 2, 2]),
    ]
    return mvit.MViT((32, 32), 4, stages, True, True, True, True, num_classes=10)


_DYNAMIC = {"dynamic": Dynamic({"x": (0, 2, 3)}, {"x": normal(3, 3, 96, 64)})}
_VIT = {"image_size": 64, "patch_size": 16, "num_layers": 2, "num_heads": 4}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "squeezenet1_1": {},
    "densenet121": {},
    "googlenet": {"init_weights": False},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "shufflenet_v2_x0_5": {},
    "mnasnet0_5": {},
    "efficientnet_b0": {},
    "regnet_y_400mf": {},
}
ROWS = [
    _picture("resnet18", batch=2, more=_DYNAMIC),
    *(_picture(name, **keywords) for name, keywords in CLASSIFIERS.items()),
    _picture("VisionTransformer", hidden_dim=48, mlp_dim=64, **_VIT),
    _row("convnext", "vision", {"x": normal(1, 3, 64, 64)}, _convnext),
    _row("swin", "vision", {"x": normal(1, 3, 64, 64)}, lambda: _swin(1)),
    _row("swin_v2", "vision", {"x": normal(1, 3, 64, 64)}, lambda: _swin(2)),
    _row("maxvit", "vision", {"x": normal(1, 3, 64, 64)}, _maxvit),
    _segmentation("deeplabv3_mobilenet_v3_large", "x"),
    _segmentation("lraspp_mobilenet_v3_large", "input"),
    _video("video_resnet", _slices),
    _video("mvit", _mvit),
    _video("swin3d", _swin3d),
    _flow("raft_small"),
]
