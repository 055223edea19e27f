"""Families that compute with pairs of elements, or with windows of n elements."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from coreai_torch.ops.vision import Spans, _greatest_of_all, greatest_in_bins

from .family import Call, Family

_WINDOW = "the runtime's single op passes over all elements of each window"


def _nms(n: int) -> Call:
    corner = torch.rand(n, 2) * 40  # many overlaps, so that few boxes are kept
    boxes = torch.cat([corner, corner + 20 + torch.rand(n, 2) * 20], 1)
    return lambda b, s: torch.ops.torchvision.nms(b, s, 0.3), (boxes, torch.rand(n))


def _fold(n: int) -> Call:
    side = math.isqrt(n)
    columns = torch.randn(1, 4 * 9, side * side)
    return lambda x: functional.fold(x, side, 3, padding=1), (columns,)


def _rectangles(n: int) -> Call:
    side = math.isqrt(n)
    first = torch.randint(0, side // 2, (64, 7))
    spans = Spans(first, first + 1 + torch.arange(64 * 7).reshape(64, 7) % (side // 2))

    def run(x: Tensor, first: Tensor, end: Tensor) -> Tensor:
        owner = torch.zeros(64, dtype=torch.int64)
        return greatest_in_bins(x, owner, Spans(first, end), Spans(first, end)).value

    return run, (torch.randn(1, 4, side, side), *spans)


def _regions(n: int) -> Call:
    """Regions of one bin each, which have any size."""
    side = math.isqrt(n)
    first = torch.randint(0, side // 2, (n, 1))
    spans = Spans(first, first + 1 + side // 3)

    def run(x: Tensor, first: Tensor, end: Tensor) -> Tensor:
        owner = torch.zeros_like(first[:, 0])
        return _greatest_of_all(x, owner, Spans(first, end), Spans(first, end)).value

    return run, (torch.randn(1, 1, side, side), *spans)


def _flex(n: int) -> Call:
    def near(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return torch.where((q - k).abs() < 9, score, -math.inf)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=near)

    return run, tuple(torch.randn(1, 1, n, 8) for _ in range(3))


def _grouped(n: int) -> Call:
    ends = torch.arange(1, n // 8 + 1, dtype=torch.int32) * 8
    matrices = torch.randn(n // 8, 16, 16).bfloat16()
    return torch._grouped_mm, (torch.randn(n, 16).bfloat16(), matrices, ends)


def _pooled(n: int) -> Call:
    def run(x: Tensor) -> list[Tensor]:
        return [
            functional.max_pool2d(x[:, :, None], (1, n // 2), 1),
            functional.avg_pool1d(x, n // 2, 1),
        ]

    return run, (torch.randn(1, 1, n),)


def _pooled_with_indices(n: int) -> Call:
    def run(x: Tensor) -> Any:
        return functional.max_pool2d(x[:, :, None], (1, n // 2), 1, return_indices=True)

    return run, (torch.randn(1, 1, n),)


def _convolved(n: int) -> Call:
    return (
        lambda x, w: functional.conv1d(x, w, padding=n // 2),
        (torch.randn(1, 1, n), torch.randn(1, 1, n + 1)),
    )


_ATTENTION = (
    Family(
        "scaled_dot_product_attention of n positions",
        "n^2",
        lambda n: (
            functional.scaled_dot_product_attention,
            tuple(torch.randn(1, 1, n, 8) for _ in range(3)),
        ),
        n=128,
        memory="n^2",
        reason="a score for each pair of positions",
        lowers="scaled_dot_product_attention",
        sizes="both",
    ),
    Family(
        "flex_attention of n positions",
        "n^2",
        _flex,
        n=64,
        constants="n^2",
        memory="n^2",
        reason="a score for each pair of positions: blocks that the mask hides are not skipped, "
        "and masks and biases of fixed positions are stored",
        lowers="higher_order::flex_attention",
        sizes="both",
    ),
)

_TABLES = (
    Family(
        "torchvision::nms",
        "n^2",
        _nms,
        n=64,
        constants="n",
        reason="a pass over the boxes for each box kept, which is n² if all are kept",
        lowers="torchvision::nms",
        sizes="both",
    ),
    Family(
        "multilabel_margin_loss of n classes",
        "n^2",
        lambda n: (functional.multilabel_margin_loss, (torch.randn(1, n), torch.arange(n)[None])),
        n=64,
        memory="n^2",
        reason="a table of labels and classes",
        lowers="multilabel_margin_loss",
        like="multilabel_margin_loss_forward",
        sizes="both",
    ),
    Family(
        "cdist, pdist of n points",
        "n^2",
        lambda n: (torch.pdist, (torch.randn(n, 4),)),
        n=64,
        constants="n^2",
        memory="n^2",
        reason="a distance for each pair; pdist computes both of them and selects one",
        lowers="pdist",
        like="_pdist_forward _cdist_forward",
        sizes="both",
    ),
    Family(
        "cdist of n points with n coordinates, unless p = 2 and n is above 25",
        "n^3",
        lambda n: (lambda x, y: torch.cdist(x, y, p=1.0), (torch.randn(n, n), torch.randn(n, n))),
        n=16,
        memory="n^3",
        reason="a table of the differences of all coordinates of all pairs",
        lowers="cdist",
        like="_cdist_forward",
        sizes="both",
    ),
    Family(
        "_grouped_mm of n rows in n / 8 groups",
        "n^2",
        _grouped,
        n=64,
        memory="n^2",
        reason="the products of all rows with all matrices, then a selection; at most as "
        "many rows as groups read one matrix each",
        lowers="_grouped_mm",
        like="transformers::grouped_mm_fallback",
        sizes="both",
    ),
)

_WINDOWS = (
    Family(
        "fold (col2im)",
        "n",
        _fold,
        constants="n",
        reason="one gathered row per overlap",
        lowers="col2im",
    ),
    Family(
        "torchvision::roi_pool of n pixels",
        "n log^2 n",
        _rectangles,
        n=256,
        program="log^2 n",
        constants="n",
        memory="n log^2 n",
        reason="tables of the rectangles whose sides are powers of two",
        like="torchvision::roi_pool",
    ),
    Family(
        "torchvision::roi_pool of n bins in a picture of dynamic size with n pixels",
        "n^2",
        _regions,
        n=256,
        memory="n^2",
        reason="a table of all bins and pixels: the number of powers of two would depend on n",
        like="torchvision::roi_pool",
        sizes="dynamic",
    ),
    Family(
        "max_pool, avg_pool of n elements with windows of n / 2",
        "n^2",
        _pooled,
        reason=_WINDOW,
        lowers="max_pool2d avg_pool1d",
    ),
    Family(
        "max_pool with indices of n elements with windows of n / 2",
        "n^2",
        _pooled_with_indices,
        n=256,
        constants="n^2",
        memory="n^2",
        reason="the runtime's op returns no indices: a table of the elements of all windows",
        lowers="max_pool2d_with_indices",
    ),
    Family(
        "convolution of n elements with n taps",
        "n^2",
        _convolved,
        memory="n^2",
        reason=_WINDOW,
        lowers="convolution",
    ),
)

PAIRS = (*_ATTENTION, *_TABLES, *_WINDOWS)
