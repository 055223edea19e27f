"""Single calls that move, select, read and write elements."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .inputs import Calls, floats, ids

PICTURE = (1, 8, 28, 28)

PADS: Calls = {
    "constant": lambda: (lambda x: functional.pad(x, (1, 2, 3, 4)), floats(*PICTURE)),
    "constant value": lambda: (lambda x: functional.pad(x, (2, 0), value=1.5), floats(4, 32)),
    "negative": lambda: (lambda x: functional.pad(x, (-1, 2, 1, -2)), floats(*PICTURE)),
    "reflect 1d": lambda: (lambda x: functional.pad(x, (3, 2), "reflect"), floats(1, 8, 64)),
    "reflect 2d": lambda: (lambda x: functional.pad(x, (1, 1, 1, 1), "reflect"), floats(*PICTURE)),
    "replicate 2d": lambda: (
        lambda x: functional.pad(x, (1, 2, 1, 2), "replicate"),
        floats(*PICTURE),
    ),
    "circular 2d": lambda: (
        lambda x: functional.pad(x, (1, 1, 2, 2), "circular"),
        floats(*PICTURE),
    ),
}
RESIZES: Calls = {
    "nearest x2": lambda: (lambda x: functional.interpolate(x, scale_factor=2), floats(*PICTURE)),
    "nearest to 45": lambda: (lambda x: functional.interpolate(x, size=45), floats(*PICTURE)),
    "nearest to 14": lambda: (lambda x: functional.interpolate(x, size=14), floats(*PICTURE)),
    "nearest 1d": lambda: (lambda x: functional.interpolate(x, scale_factor=2), floats(1, 8, 32)),
    "nearest-exact to 45": lambda: (
        lambda x: functional.interpolate(x, size=45, mode="nearest-exact"),
        floats(*PICTURE),
    ),
    "linear 1d": lambda: (
        lambda x: functional.interpolate(x, scale_factor=2, mode="linear"),
        floats(1, 8, 32),
    ),
    "bilinear x2": lambda: (
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        floats(*PICTURE),
    ),
    "bilinear to 45": lambda: (
        lambda x: functional.interpolate(x, size=(45, 37), mode="bilinear"),
        floats(*PICTURE),
    ),
    "bilinear aligned corners": lambda: (
        lambda x: functional.interpolate(x, size=56, mode="bilinear", align_corners=True),
        floats(*PICTURE),
    ),
    "bilinear antialias": lambda: (
        lambda x: functional.interpolate(x, size=14, mode="bilinear", antialias=True),
        floats(*PICTURE),
    ),
    "bicubic x2": lambda: (
        lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"),
        floats(*PICTURE),
    ),
    "trilinear x2": lambda: (
        lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
        floats(1, 4, 8, 8, 8),
    ),
    "grid_sample bilinear": lambda: (
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        (*floats(*PICTURE), torch.rand(1, 14, 14, 2) * 2 - 1),
    ),
    "pixel_shuffle": lambda: (lambda x: functional.pixel_shuffle(x, 2), floats(*PICTURE)),
    "pixel_unshuffle": lambda: (lambda x: functional.pixel_unshuffle(x, 2), floats(*PICTURE)),
}
MOVES: Calls = {
    "flip last": lambda: (lambda x: x.flip(-1), floats(*PICTURE)),
    "flip two axes": lambda: (lambda x: x.flip(2, 3), floats(*PICTURE)),
    "roll one axis": lambda: (lambda x: x.roll(3, 1), floats(1, 56, 24)),
    "roll two axes": lambda: (lambda x: x.roll((-3, -3), (1, 2)), floats(1, 28, 28, 24)),
    "rot90": lambda: (lambda x: torch.rot90(x, 1, (2, 3)), floats(*PICTURE)),
    "repeat": lambda: (lambda x: x.repeat(2, 3), floats(8, 16)),
    "repeat_interleave": lambda: (lambda x: x.repeat_interleave(4, 1), floats(1, 2, 16, 8)),
    "expand": lambda: (lambda x: x[:, None].expand(4, 3, 16) + 1, floats(4, 16)),
    "channel_shuffle": lambda: (lambda x: functional.channel_shuffle(x, 2), floats(*PICTURE)),
    "unfold patches": lambda: (lambda x: functional.unfold(x, 4, stride=4), floats(*PICTURE)),
    "unfold windows": lambda: (lambda x: functional.unfold(x, 3, padding=1), floats(*PICTURE)),
    "fold": lambda: (lambda x: functional.fold(x, 28, 3, padding=1), floats(1, 72, 784)),
    "sliding windows": lambda: (lambda x: x.unfold(1, 8, 4), floats(2, 64)),
    "stack of slices": lambda: (lambda x: torch.stack([x[:, ::2], x[:, 1::2]]), floats(4, 16)),
    "chunk and cat": lambda: (lambda x: torch.cat(x.chunk(4, 1)[::-1], 1), floats(1, 16, 8)),
    "rotate half": lambda: (
        lambda x: torch.cat((-x[..., 8:], x[..., :8]), -1),
        floats(1, 4, 12, 16),
    ),
    "interleaved rotary": lambda: (
        lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2),
        floats(1, 4, 12, 16),
    ),
    "window partition": lambda: (
        lambda x: x.view(1, 4, 7, 4, 7, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 8),
        floats(1, 28, 28, 8),
    ),
    "tril": lambda: (lambda x: x.tril(), floats(16, 16)),
    "block_diag": lambda: (torch.block_diag, (*floats(3, 4), *floats(5, 2))),
    "diagonal": lambda: (lambda x: x.diagonal(), floats(16, 16)),
    "diag_embed": lambda: (torch.diag_embed, floats(4, 8)),
}


def _written(x: Tensor, v: Tensor) -> Tensor:
    x = x.clone()
    x[:, 2:5] = v
    return x


def _strided_write(x: Tensor, v: Tensor) -> Tensor:
    x = x.clone()
    x[:, ::2] = v
    return x


def _row_write(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
    x = x.clone()
    x[i] = v
    return x


SELECTIONS: Calls = {
    "argmax": lambda: (lambda x: x.argmax(-1), floats(4, 1000)),
    "argmax of 32,000": lambda: (lambda x: x.argmax(-1), floats(1, 32_000)),
    "argmin": lambda: (lambda x: x.argmin(1), floats(4, 100)),
    "max with index": lambda: (lambda x: x.max(1), floats(4, 100)),
    "topk": lambda: (lambda x: x.topk(5), floats(4, 1000)),
    "topk values": lambda: (lambda x: x.topk(5).values, floats(4, 1000)),
    "sort": lambda: (lambda x: x.sort(-1), floats(4, 100)),
    "argsort descending": lambda: (lambda x: x.argsort(-1, descending=True), floats(4, 100)),
    "kthvalue": lambda: (lambda x: x.kthvalue(5, 1), floats(4, 100)),
    "median": lambda: (lambda x: x.median(1), floats(4, 101)),
    "cumsum": lambda: (lambda x: x.cumsum(1), floats(4, 100)),
    "cumsum of ids": lambda: (lambda x: x.cumsum(1), (ids(2, 4, 100),)),
    "cumprod": lambda: (lambda x: x.cumprod(1), floats(4, 32)),
    "logcumsumexp": lambda: (lambda x: x.logcumsumexp(1), floats(4, 32)),
    "maximum of two": lambda: (torch.maximum, floats(4, 8) * 2),
    "any": lambda: (lambda x: (x > 1).any(1), floats(4, 8)),
}
INDICES: Calls = {
    "embedding": lambda: (nn.Embedding(1000, 64), (ids(1000, 1, 16),)),
    "embedding of 4": lambda: (nn.Embedding(100, 4), (ids(100, 2, 16),)),
    "embedding_bag mean": lambda: (nn.EmbeddingBag(100, 16), (ids(100, 4, 8),)),
    "x[i]": lambda: (lambda x, i: x[i], (*floats(100, 8), ids(100, 12))),
    "x[:, i]": lambda: (lambda x, i: x[:, i], (*floats(4, 100, 8), ids(100, 12))),
    "x[i, j]": lambda: (lambda x, i, j: x[i, j], (*floats(20, 30), ids(20, 12), ids(30, 12))),
    "x[arange, last]": lambda: (
        lambda x, i: x[torch.arange(4), i],
        (*floats(4, 12, 8), ids(12, 4)),
    ),
    "constant index": lambda: (lambda x: x[:, [2, 1, 0]], floats(1, 3, 28, 28)),
    "constant table": lambda: (
        lambda x, t: (
            x + t[(torch.arange(16)[:, None] - torch.arange(16)[None] + 15).flatten()].view(16, 16)
        ),
        (*floats(16, 16), *floats(31)),
    ),
    "index_select": lambda: (
        lambda x, i: x.index_select(1, i),
        (*floats(4, 100), ids(100, 12)),
    ),
    "gather": lambda: (lambda x, i: x.gather(1, i), (*floats(4, 100), ids(100, 4, 12))),
    "take_along_dim": lambda: (
        lambda x, i: x.take_along_dim(i[..., None], 1),
        (*floats(4, 100, 8), ids(100, 4, 12)),
    ),
    "x[a:b] = v": lambda: (_written, (*floats(4, 16), *floats(4, 3))),
    "x[::2] = v": lambda: (_strided_write, (*floats(4, 16), *floats(4, 8))),
    "x[i] = v": lambda: (_row_write, (*floats(20, 8), torch.randperm(20)[:5], *floats(5, 8))),
    "slice_scatter": lambda: (
        lambda x, v: x.slice_scatter(v, 1, 2, 5),
        (*floats(4, 16), *floats(4, 3)),
    ),
    "scatter": lambda: (
        lambda x, i, v: x.scatter(1, i, v),
        (*floats(4, 20), torch.stack([torch.randperm(20)[:5]] * 4), *floats(4, 5)),
    ),
    "scatter_add": lambda: (
        lambda x, i, v: x.scatter_add(1, i, v),
        (*floats(4, 20), ids(20, 4, 5), *floats(4, 5)),
    ),
    "index_add": lambda: (
        lambda x, i, v: x.index_add(0, i, v),
        (*floats(20, 8), ids(20, 5), *floats(5, 8)),
    ),
    "one_hot": lambda: (lambda i: functional.one_hot(i, 20), (ids(20, 4, 6),)),
    "masked_fill": lambda: (
        lambda x, m: x.masked_fill(m, float("-inf")),
        (*floats(4, 8), torch.rand(4, 8) > 0.5),
    ),
    "where": lambda: (lambda x, y: torch.where(x > y, x, y * 2), floats(4, 8) * 2),
    "bucketize": lambda: (torch.bucketize, (*floats(40), torch.linspace(-1, 1, 9))),
}
