"""Detectors of `torchvision`: heads up to the suppression of boxes, and the pooling of regions.

The unmodified detectors keep the boxes that score above a threshold and branch on their number,
which torch.export rejects; here a fixed number of the best boxes follows the heads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .row import Row, exactly, normal
from .torchvision_library import models, ops

_SIZE, _KEPT, _OVERLAP = 96, 40, 0.2
# One region for each level of a pyramid whose smallest regions have 6 pixels. In a pyramid for
# larger regions all four are on the lowest level, and the other levels pool nothing.
_REGIONS = exactly(
    [
        [8.0, 8.0, 14.0, 13.0],
        [30.5, 10.25, 42.0, 24.0],
        [4.0, 6.0, 30.0, 32.0],
        [0.0, 0.0, 96.0, 96.0],
    ]
)


def _anchors(sizes: Any = ((8, 16), (16, 32), (32, 64)), ratios: Any = (0.5, 1.0)) -> Any:
    """Return a generator of boxes at every position of the three feature maps."""
    return models("detection.anchor_utils").AnchorGenerator(sizes, (ratios,) * 3)


def _detector(name: str, **keywords: Any) -> Any:
    backbone = models("detection.backbone_utils").mobilenet_backbone(
        backbone_name="mobilenet_v3_small", weights=None, fpn=True, trainable_layers=6
    )
    keywords = {"num_classes": 5, "min_size": _SIZE, "max_size": _SIZE, **keywords}
    return getattr(models("detection"), name)(backbone, **keywords)


def _with_forward(model: Any, forward: Callable[..., Any]) -> Any:
    """Replace `forward` by one that calls the same parts, without the code that export rejects."""
    from torch import nn

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

    Parts.forward = lambda self, *args, **kwargs: forward(self.model, *args, **kwargs)
    return Parts()


def _located(x: Any, features: list[Any], generator: Any) -> Any:
    image_list = models("detection.image_list").ImageList(x, [tuple(x.shape[-2:])])
    return generator(image_list, features)


def _suppressed(boxes: Any, scores: Any) -> dict[str, Any]:
    """Return the best boxes that do not overlap, their scores and labels."""
    best, labels = scores.max(-1)
    best, order = best.topk(min(_KEPT, len(best)))
    kept = ops().nms(boxes[order], best, _OVERLAP)
    return {"boxes": boxes[order][kept], "scores": best[kept], "labels": labels[order][kept]}


def _retinanet(model: Any, x: Any) -> Any:
    features = list(model.backbone(x).values())
    heads = model.head(features)
    (anchors,) = _located(x, features, model.anchor_generator)
    boxes = model.box_coder.decode_single(heads["bbox_regression"][0], anchors)
    return _suppressed(boxes, heads["cls_logits"][0].sigmoid())


def _fcos(model: Any, x: Any) -> Any:
    features = list(model.backbone(x).values())
    heads = model.head(features)
    (anchors,) = _located(x, features, model.anchor_generator)
    boxes = model.box_coder.decode(heads["bbox_regression"][0], anchors)
    scores = heads["cls_logits"][0].sigmoid() * heads["bbox_ctrness"][0].sigmoid()
    return _suppressed(boxes, scores.sqrt())


def _ssd(model: Any, x: Any) -> Any:
    features = list(model.backbone(x).values())
    heads = model.head(features)
    (anchors,) = _located(x, features, model.anchor_generator)
    boxes = model.box_coder.decode_single(heads["bbox_regression"][0], anchors)
    return _suppressed(boxes, heads["cls_logits"][0].softmax(-1)[:, 1:])


def _proposals(model: Any, x: Any) -> Any:
    features, rpn = list(model.backbone(x).values()), model.rpn
    scores, deltas = rpn.head(features)
    anchors = _located(x, features, rpn.anchor_generator)
    flatten = models("detection.rpn").concat_box_prediction_layers
    scores, deltas = flatten(scores, deltas)
    return _suppressed(rpn.box_coder.decode(deltas, anchors)[:, 0], scores.sigmoid())


def _boxes(model: Any, x: Any, regions: Any) -> Any:
    heads = model.roi_heads
    pooled = heads.box_roi_pool(model.backbone(x), [regions], [tuple(x.shape[-2:])])
    return heads.box_predictor(heads.box_head(pooled))


def _found(model: Any, x: Any, regions: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return the feature maps, the box of each region with score and label, and the kept boxes."""
    heads, maps = model.roi_heads, model.backbone(x)
    pooled = heads.box_roi_pool(maps, [regions], [tuple(x.shape[-2:])])
    logits, moves = heads.box_predictor(heads.box_head(pooled))
    scores, labels = logits.softmax(-1)[:, 1:].max(-1)
    boxes = heads.box_coder.decode(moves, [regions])
    boxes = boxes.gather(1, (labels + 1)[:, None, None].expand(-1, 1, 4))[:, 0]
    boxes = importlib.import_module("torchvision.ops.boxes").clip_boxes_to_image(
        boxes, tuple(x.shape[-2:])
    )
    found = {"boxes": boxes, "scores": scores, "labels": labels + 1}
    return maps, found, ops().nms(boxes, scores, _OVERLAP)


def _masks(model: Any, x: Any, regions: Any) -> Any:
    """Return masks, computed before the suppression: pooling rejects a data-dependent number."""
    maps, found, kept = _found(model, x, regions)
    heads = model.roi_heads
    pooled = heads.mask_roi_pool(maps, [found["boxes"]], [tuple(x.shape[-2:])])
    logits = heads.mask_predictor(heads.mask_head(pooled))
    chosen = found["labels"][:, None, None, None].expand(-1, 1, *logits.shape[2:])
    found["masks"] = logits.sigmoid().gather(1, chosen)
    return {name: each[kept] for name, each in found.items()}


def _heatmaps(model: Any, x: Any, regions: Any) -> Any:
    """Return a map of every keypoint for each kept box."""
    maps, found, kept = _found(model, x, regions)
    heads = model.roi_heads
    pooled = heads.keypoint_roi_pool(maps, [found["boxes"]], [tuple(x.shape[-2:])])
    found["keypoints"] = heads.keypoint_predictor(heads.keypoint_head(pooled))
    return {name: each[kept] for name, each in found.items()}


def at_size(row: Row, size: int, regions: int) -> Row:
    """Return a row for an image of another size, and many regions if it pools regions."""
    inputs = {**row.inputs, "x": normal(1, 3, size, size)}
    if "regions" in inputs:
        inputs["regions"] = exactly([_region(n, size) for n in range(regions)])
    return replace(row, name=f"{row.name} {size}x{size}", inputs=inputs)


def _region(number: int, size: int) -> list[float]:
    """Return a box of a size from 8 pixels to half of the image, somewhere in it."""
    side = 8.0 + number * 37 % (size // 2 - 8)
    left, top = number * 61 % (size - side), number * 97 % (size - side)
    return [left, top, left + side, top + side * 0.75]


def _row(name: str, build: Callable[[], Any], forward: Callable[..., Any], **inputs: Any) -> Row:
    made = {"x": normal(1, 3, _SIZE, _SIZE), **inputs}
    return Row(
        f"torchvision_{name}",
        "torchvision",
        "detection",
        lambda: _with_forward(build(), forward),
        made,
    )


def _pyramid() -> Any:
    """Return a detector that pools regions from four levels, those of 6 pixels from the lowest."""
    backbone = models("detection.backbone_utils").resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, trainable_layers=5
    )
    pool = ops().MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2, canonical_scale=24)
    return models("detection").FasterRCNN(backbone, num_classes=5, box_roi_pool=pool)


_WIDTH = 32


def _small(name: str, **heads: Any) -> Any:
    """Return a Mask or Keypoint R-CNN with few channels."""
    detection = models("detection.faster_rcnn")
    backbone = models("detection.backbone_utils").BackboneWithFPN(
        models("resnet").resnet18(),
        {f"layer{i + 1}": str(i) for i in range(4)},
        [64, 128, 256, 512],
        _WIDTH,
    )
    return getattr(models("detection"), name)(
        backbone,
        box_head=detection.TwoMLPHead(_WIDTH * 49, 64),
        box_predictor=detection.FastRCNNPredictor(64, 5),
        **heads,
    )


def _mask_rcnn() -> Any:
    parts = models("detection.mask_rcnn")
    return _small(
        "MaskRCNN",
        mask_head=parts.MaskRCNNHeads(_WIDTH, (_WIDTH, _WIDTH), 1),
        mask_predictor=parts.MaskRCNNPredictor(_WIDTH, _WIDTH, 5),
    )


def _keypoint_rcnn() -> Any:
    parts = models("detection.keypoint_rcnn")
    return _small(
        "KeypointRCNN",
        keypoint_head=parts.KeypointRCNNHeads(_WIDTH, (_WIDTH, _WIDTH)),
        keypoint_predictor=parts.KeypointRCNNPredictor(_WIDTH, 17),
    )


def _faster_rcnn() -> Any:
    return _detector("FasterRCNN", rpn_anchor_generator=_anchors())


def _ssdlite() -> Any:
    detection = models("detection")
    return detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5
    )


_POINTS = (((8,), (16,), (32,)), (1.0,))

ROWS = [
    _row(
        "retinanet",
        lambda: _detector("RetinaNet", anchor_generator=_anchors()),
        _retinanet,
    ),
    _row(
        "fcos",
        lambda: _detector("FCOS", anchor_generator=_anchors(((8,), (16,), (32,)), (1.0,))),
        _fcos,
    ),
    _row("ssdlite", _ssdlite, _ssd),
    _row("region_proposals", _faster_rcnn, _proposals),
    _row("faster_rcnn_boxes", _pyramid, _boxes, regions=_REGIONS),
    _row("mask_rcnn", _mask_rcnn, _masks, regions=_REGIONS),
    _row("keypoint_rcnn", _keypoint_rcnn, _heatmaps, regions=_REGIONS),
    Row(
        "torchvision_fasterrcnn_whole",
        "torchvision",
        "detection",
        lambda: _with_forward(_faster_rcnn(), lambda model, x: model([x])[0]),
        {"x": normal(3, _SIZE, _SIZE)},
        refused="Could not guard on data-dependent expression",
        because="torch.export: it branches on how many boxes pass a threshold",
    ),
]
