"""The measured calls: a function and its arguments, by op and size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from .real_inputs import Call, counted_loop, scan


def boxes(count: int) -> tuple[Tensor, Tensor]:
    corner = torch.rand(count, 2) * 600
    return torch.cat([corner, corner + 10 + torch.rand(count, 2) * 100], 1), torch.rand(count)


def _greedy(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Return what torchvision's kernel returns; the wheel for CUDA cannot be loaded here."""
    order, kept = scores.sort(descending=True, stable=True)[1], []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[order, :2])
        high = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        order = order[shared / (area[best] + area[order] - shared) <= threshold]
    return torch.stack(kept)


def nms(boxes: Tensor, scores: Tensor) -> Tensor:
    return torch.ops.torchvision.nms(boxes, scores, 0.5)


def define_nms() -> torch.library.Library:
    """Register `torchvision::nms`, as the library would."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _greedy, "CompositeExplicitAutograd")

    def some(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
        return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    torch.library.register_fake("torchvision::nms", some, lib=library)
    return library


def _fold(channels: int, size: int, kernel: int, stride: int, padding: int) -> Call:
    windows = (size + 2 * padding - kernel) // stride + 1
    columns = torch.randn(1, channels * kernel * kernel, windows * windows)
    return lambda x: functional.fold(x, size, kernel, padding=padding, stride=stride), (columns,)


def _table(count: int) -> Call:
    def positions(table: Tensor, x: Tensor) -> Tensor:
        place = torch.arange(count)
        return x + table[place[:, None] - place[None] + count - 1]

    return positions, (torch.randn(2 * count - 1), torch.randn(count, count))


def _ascending(count: int) -> Tensor:
    return torch.sort(torch.randn(count)).values


CASES: dict[str, Callable[[], Call]] = {
    "rfft 48,000": lambda: (torch.fft.rfft, (torch.randn(48_000),)),
    "rfft 4x16,384": lambda: (torch.fft.rfft, (torch.randn(4, 16_384),)),
    "fft 10,007": lambda: (torch.fft.fft, (torch.randn(10_007, dtype=torch.complex64),)),
    "irfft 48,000": lambda: (torch.fft.irfft, (torch.randn(24_001, dtype=torch.complex64),)),
    "fft2 256x256": lambda: (torch.fft.fft2, (torch.randn(256, 256, dtype=torch.complex64),)),
    "stft 16,000 of 400": lambda: (
        lambda x, w: torch.stft(x, 400, 160, window=w, return_complex=True),
        (torch.randn(1, 16_000), torch.hann_window(400)),
    ),
    "searchsorted 100,000 in 10,000": lambda: (
        torch.searchsorted,
        (_ascending(10_000), torch.randn(100_000)),
    ),
    "searchsorted 1,000 in 100,000": lambda: (
        torch.searchsorted,
        (_ascending(100_000), torch.randn(1_000)),
    ),
    "bucketize 1M in 256": lambda: (torch.bucketize, (torch.randn(1_000_000), _ascending(256))),
    "fold 192 of 28x28": lambda: _fold(192, 28, 3, 2, 1),
    "fold 192 of 56x56": lambda: _fold(192, 56, 3, 1, 1),
    "logcumsumexp 4x8,192": lambda: (lambda x: x.logcumsumexp(1), (torch.randn(4, 8_192),)),
    "cumprod 4x8,192": lambda: (lambda x: x.cumprod(1), (torch.rand(4, 8_192) + 0.5,)),
    "cummax 4x8,192": lambda: (lambda x: x.cummax(1), (torch.randn(4, 8_192),)),
    "nms 8,400": lambda: (nms, boxes(8_400)),
    "topk 50 of 151,936": lambda: (lambda x: x.topk(50), (torch.randn(1, 151_936),)),
    "median 100,001": lambda: (torch.median, (torch.randn(100_001),)),
    "kthvalue 100,001": lambda: (lambda x: x.kthvalue(1_000), (torch.randn(100_001),)),
    "unique 100,000": lambda: (torch.unique, (torch.randint(0, 5_000, (100_000,)),)),
    "sort 100,000": lambda: (torch.sort, (torch.randn(100_000),)),
    "grid_sample bicubic 256x256": lambda: (
        lambda x, g: functional.grid_sample(x, g, mode="bicubic", align_corners=False),
        (torch.randn(1, 3, 256, 256), torch.rand(1, 256, 256, 2) * 2 - 1),
    ),
    "roll 224x224x96": lambda: (
        lambda x: torch.roll(x, (-3, -3), (1, 2)),
        (torch.randn(1, 224, 224, 96),),
    ),
    "adaptive_avg_pool2d 57x57 to 7x7": lambda: (
        lambda x: functional.adaptive_avg_pool2d(x, 7),
        (torch.randn(1, 512, 57, 57),),
    ),
    "repeat_interleave 10,000": lambda: (
        lambda x, n: torch.repeat_interleave(x, n, 0),
        (torch.randn(10_000, 64), torch.randint(0, 4, (10_000,))),
    ),
    "repeat_interleave 3 of 10,000x64": lambda: (
        lambda x: torch.repeat_interleave(x, 3, 0),
        (torch.randn(10_000, 64),),
    ),
    "one_hot 4,096 of 1,000": lambda: (
        lambda x: functional.one_hot(x, 1_000),
        (torch.randint(0, 1_000, (4_096,)),),
    ),
    "masked_scatter 1M": lambda: (
        torch.masked_scatter,
        (torch.randn(1_000_000), torch.rand(1_000_000) > 0.5, torch.randn(1_000_000)),
    ),
    "isin 100,000 in 10,000": lambda: (
        torch.isin,
        (torch.randint(0, 50_000, (100_000,)), torch.randint(0, 50_000, (10_000,))),
    ),
    "pad 64x224x224": lambda: (
        lambda x: functional.pad(x, (3, 3, 3, 3)),
        (torch.randn(1, 64, 224, 224),),
    ),
    "pad 3x224x224": lambda: (
        lambda x: functional.pad(x, (3, 3, 3, 3)),
        (torch.randn(1, 3, 224, 224),),
    ),
    "reflection pad 64x128x128": lambda: (
        lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
        (torch.randn(1, 64, 128, 128),),
    ),
    "max_pool2d 64x112x112": lambda: (
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        (torch.randn(1, 64, 112, 112),),
    ),
    "avg_pool2d 64x112x112": lambda: (
        lambda x: functional.avg_pool2d(x, 3, 2, 1),
        (torch.randn(1, 64, 112, 112),),
    ),
    "conv2d 3x224x224": lambda: (torch.nn.Conv2d(3, 64, 7, 2, 3), (torch.randn(1, 3, 224, 224),)),
    "interpolate bilinear 64x56x56": lambda: (
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        (torch.randn(1, 64, 56, 56),),
    ),
    "interpolate nearest 64x56x56": lambda: (
        lambda x: functional.interpolate(x, scale_factor=2),
        (torch.randn(1, 64, 56, 56),),
    ),
    "grid_sample bilinear 256x256": lambda: (
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        (torch.randn(1, 3, 256, 256), torch.rand(1, 256, 256, 2) * 2 - 1),
    ),
    "unfold 64 of 56x56": lambda: (
        lambda x: functional.unfold(x, 3, padding=1),
        (torch.randn(1, 64, 56, 56),),
    ),
    "embedding 512 of 30,522x768": lambda: (
        torch.nn.Embedding(30_522, 768),
        (torch.randint(0, 30_522, (1, 512)),),
    ),
    "index_select 10,000 of 10,000x64": lambda: (
        lambda x, i: x.index_select(0, i),
        (torch.randn(10_000, 64), torch.randint(0, 10_000, (10_000,))),
    ),
    "gather 1,000x1,000": lambda: (
        lambda x, i: x.gather(1, i),
        (torch.randn(1_000, 1_000), torch.randint(0, 1_000, (1_000, 1_000))),
    ),
    "scatter_add 100,000x16": lambda: (
        lambda x, i, y: x.scatter_add(0, i, y),
        (torch.zeros(1_000, 16), torch.randint(0, 1_000, (100_000, 16)), torch.randn(100_000, 16)),
    ),
    "index_add 100,000x16": lambda: (
        lambda x, i, y: x.index_add(0, i, y),
        (torch.zeros(1_000, 16), torch.randint(0, 1_000, (100_000,)), torch.randn(100_000, 16)),
    ),
    "index_put 10,000x64": lambda: (
        lambda x, i, y: x.index_put((i,), y),
        (torch.zeros(20_000, 64), torch.randperm(20_000)[:10_000], torch.randn(10_000, 64)),
    ),
    "cumsum 64x8,192": lambda: (lambda x: x.cumsum(1), (torch.randn(64, 8_192),)),
    "masked_select 1M": lambda: (
        torch.masked_select,
        (torch.randn(1_000_000), torch.rand(1_000_000) > 0.5),
    ),
    "nonzero 1M": lambda: (torch.nonzero, ((torch.rand(1_000_000) > 0.5).int(),)),
    "layer_norm 512x768": lambda: (torch.nn.LayerNorm(768), (torch.randn(1, 512, 768),)),
    "batch_norm 64x112x112": lambda: (torch.nn.BatchNorm2d(64), (torch.randn(1, 64, 112, 112),)),
    "group_norm 64x112x112": lambda: (
        torch.nn.GroupNorm(32, 64),
        (torch.randn(1, 64, 112, 112),),
    ),
    "softmax 12x512x512": lambda: (lambda x: x.softmax(-1), (torch.randn(12, 512, 512),)),
    "attention 12x512x64": lambda: (
        functional.scaled_dot_product_attention,
        tuple(torch.randn(1, 12, 512, 64) for _ in range(3)),
    ),
    "gelu 512x3,072": lambda: (functional.gelu, (torch.randn(512, 3_072),)),
    "transpose and reshape 512x768": lambda: (
        lambda x: x.reshape(1, 512, 12, 64).transpose(1, 2) * 1.0,
        (torch.randn(1, 512, 768),),
    ),
    "flip 64x224x224": lambda: (lambda x: x.flip(-1), (torch.randn(1, 64, 224, 224),)),
    "repeat 8 of 512x768": lambda: (lambda x: x.repeat(8, 1), (torch.randn(512, 768),)),
    "tril 1,024x1,024": lambda: (torch.tril, (torch.randn(1_024, 1_024),)),
    "pixel_shuffle 64x112x112": lambda: (
        lambda x: functional.pixel_shuffle(x, 2),
        (torch.randn(1, 64, 112, 112),),
    ),
    "var 64x8,192": lambda: (lambda x: x.var(1), (torch.randn(64, 8_192),)),
    "argmax 64x30,522": lambda: (lambda x: x.argmax(1), (torch.randn(64, 30_522),)),
    "cdist 1,000x64": lambda: (torch.cdist, (torch.randn(1_000, 64), torch.randn(1_000, 64))),
    "relative positions 512": lambda: _table(512),
    "lstm 1,000 steps": lambda: (torch.nn.LSTM(64, 64), (torch.randn(1_000, 1, 64),)),
    "lstm 10,000 steps": lambda: (torch.nn.LSTM(64, 64), (torch.randn(10_000, 1, 64),)),
    "scan 4,096 steps": lambda: scan(4_096),
    "while_loop 10,000 steps": lambda: counted_loop(10_000),
}

# Calls that return values and places of a sort, in any order of equal numbers.
UNSTABLE_SORTS = ("sort 100,000",)
