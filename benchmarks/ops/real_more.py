"""More calls of single ops at real sizes, static and with a dynamic first axis."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from . import real_inputs as inputs
from .real_inputs import Call


def _to_1024(mode: str, **keywords: bool) -> Call:
    return (
        lambda x: functional.interpolate(x, size=(1_024, 1_024), mode=mode, **keywords),
        (torch.randn(1, 3, 256, 256),),
    )


def _along_first(function: Callable[[torch.Tensor], object], *shape: int) -> Call:
    return function, (torch.randn(*shape),)


def _long_convolution(x: torch.Tensor) -> torch.Tensor:
    size = 2 * x.shape[0]
    product = torch.fft.rfft(x, size, 0) * torch.fft.rfft(torch.tanh(x), size, 0)
    return torch.fft.irfft(product, size, 0)[: x.shape[0]]


def _graph(count: int) -> Call:
    return (
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        (torch.zeros(10_000, 16), inputs.ids(10_000, count), torch.randn(count, 16)),
    )


STATIC: dict[str, Callable[[], Call]] = {
    "interpolate bilinear to 1,024x1,024": lambda: _to_1024("bilinear"),
    "interpolate bilinear aligned to 1,024x1,024": lambda: _to_1024("bilinear", align_corners=True),
    "interpolate bicubic to 1,024x1,024": lambda: _to_1024("bicubic"),
    "interpolate nearest to 1,024x1,024": lambda: _to_1024("nearest"),
    "interpolate area to 1,024x1,024": lambda: _to_1024("area"),
    "interpolate bilinear antialias 1,024 to 224": lambda: (
        lambda x: functional.interpolate(x, size=224, mode="bilinear", antialias=True),
        (torch.randn(1, 3, 1_024, 1_024),),
    ),
    "interpolate bicubic antialias 640x480 to 224": lambda: (
        lambda x: functional.interpolate(x, size=224, mode="bicubic", antialias=True),
        (torch.randn(1, 3, 640, 480),),
    ),
    "grid_sample 512x512 border": lambda: inputs.on_grid(512, padding_mode="border"),
    "group_norm 128x512x512": lambda: (
        torch.nn.GroupNorm(32, 128),
        (torch.randn(1, 128, 512, 512),),
    ),
    "instance_norm 32x512x512": lambda: (
        functional.instance_norm,
        (torch.randn(1, 32, 512, 512),),
    ),
    "reflection pad 3x1,024x1,024": lambda: (
        lambda x: functional.pad(x, (3, 3, 3, 3), mode="reflect"),
        (torch.randn(1, 3, 1_024, 1_024),),
    ),
    "reflection pad 160,000": lambda: (
        lambda x: functional.pad(x, (200, 200), mode="reflect"),
        (torch.randn(1, 1, 160_000),),
    ),
    "constant pad of rows 1M": lambda: (
        lambda x: functional.pad(x, (0, 24)),
        (torch.randn(10_000, 100),),
    ),
    "pixel_shuffle 48x256x256 by 4": lambda: (
        lambda x: functional.pixel_shuffle(x, 4),
        (torch.randn(1, 48, 256, 256),),
    ),
    "channel_shuffle 240x28x28": lambda: (
        lambda x: functional.channel_shuffle(x, 3),
        (torch.randn(1, 240, 28, 28),),
    ),
    "embedding 512 of 151,936x1,024": lambda: (
        functional.embedding,
        (inputs.ids(151_936, 1, 512), torch.randn(151_936, 1_024)),
    ),
    "argsort descending 1M": lambda: (
        lambda x: x.sort(descending=True, stable=True).indices,
        (torch.randn(1_000_000),),
    ),
    "topk 1,000 of 268,569": lambda: (lambda x: x.topk(1_000), (torch.randn(1, 268_569),)),
    "topk smallest 16 of 1,000x1,000": lambda: (
        lambda x: x.topk(16, largest=False).values,
        (torch.randn(1_000, 1_000),),
    ),
    "median rows 1,000x1,000": lambda: (lambda x: x.median(1).values, (torch.randn(1_000, 1_000),)),
    "nanmedian 100,001": lambda: (torch.nanmedian, (torch.randn(100_001),)),
    "mode rows 1,000x100": lambda: (lambda x: x.mode(1).values, (inputs.ids(20, 1_000, 100),)),
    "kthvalue rows 1,000x1,000": lambda: (
        lambda x: x.kthvalue(500).values,
        (torch.randn(1_000, 1_000),),
    ),
    "quantile rows 100x10,000": lambda: (
        lambda x: torch.quantile(x, 0.9, 1),
        (torch.randn(100, 10_000),),
    ),
    "quantile 3 of 1M": lambda: (
        lambda x: torch.quantile(x, torch.tensor([0.1, 0.5, 0.9])),
        (torch.randn(1_000_000),),
    ),
    "nanquantile 100,000": lambda: (
        lambda x: torch.nanquantile(x, 0.5),
        (torch.randn(100_000),),
    ),
    "histc 1M": lambda: (lambda x: torch.histc(x, 256, -4, 4), (torch.randn(1_000_000),)),
    "histogram 100,000": lambda: (
        lambda x: torch.histogram(x, 64, range=(-4.0, 4.0)).hist,
        (torch.randn(100_000),),
    ),
    "bincount weighted 100,000": lambda: (
        lambda x, w: torch.bincount(x, w, 1_000),
        (inputs.ids(1_000, 100_000), torch.rand(100_000)),
    ),
    "unique with counts 100,000": lambda: (
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        (inputs.ids(5_000, 100_000),),
    ),
    "searchsorted rows 64x1,000": lambda: (
        torch.searchsorted,
        (torch.sort(torch.randn(64, 1_000)).values, torch.randn(64, 4_096)),
    ),
    "searchsorted right 1M in 1,000": lambda: (
        lambda b, x: torch.searchsorted(b, x, right=True),
        (torch.sort(torch.randn(1_000)).values, torch.randn(1_000_000)),
    ),
    "index_put accumulate 100,000x16": lambda: _graph(100_000),
    "scatter 1,000x1,000": lambda: (
        lambda x, i, y: x.scatter(1, i, y),
        (
            torch.zeros(1_000, 1_000),
            torch.rand(1_000, 1_000).argsort(1),
            torch.randn(1_000, 1_000),
        ),
    ),
    "gather rows 50,000 of 8,400x85": lambda: (
        lambda x, i: x[i],
        (torch.randn(8_400, 85), inputs.ids(8_400, 50_000)),
    ),
    "index by two tensors 1M": lambda: (
        lambda x, i, j: x[:, i, j],
        (torch.randn(8, 512, 512), inputs.ids(512, 125_000), inputs.ids(512, 125_000)),
    ),
    "masked_scatter rows 4,096x512": lambda: (
        lambda x, m, y: x.masked_scatter(m[:, None].expand(-1, 512), y),
        (torch.zeros(4_096, 512), torch.rand(4_096) > 0.5, torch.randn(4_096, 512)),
    ),
    "where 1M": lambda: (
        lambda x, y: torch.where(x > y, x, y),
        (torch.randn(1_000_000), torch.randn(1_000_000)),
    ),
    "cdist 2,048x2,048x128": lambda: (
        torch.cdist,
        (torch.randn(2_048, 128), torch.randn(2_048, 128)),
    ),
    "cdist p=1 batched 4x512": lambda: (
        lambda a, b: torch.cdist(a, b, p=1.0),
        (torch.randn(4, 512, 32), torch.randn(4, 512, 32)),
    ),
    "cosine similarity 1,000x1,000x256": lambda: (
        lambda a, b: functional.cosine_similarity(a[:, None], b[None], -1),
        (torch.randn(500, 128), torch.randn(500, 128)),
    ),
    "einsum of four operands": lambda: (
        lambda a, b, c, d: torch.einsum("bi,ij,jk,bk->b", a, b, c, d),
        (
            torch.randn(256, 128),
            torch.randn(128, 256),
            torch.randn(256, 128),
            torch.randn(256, 128),
        ),
    ),
    "einsum bchw,bkc->bkhw": lambda: (
        lambda x, y: torch.einsum("bchw,bkc->bkhw", x, y),
        (torch.randn(1, 256, 160, 160), torch.randn(1, 100, 256)),
    ),
    "einsum of three with a diagonal": lambda: (
        lambda a, b: torch.einsum("bii,bij->bj", a, b),
        (torch.randn(64, 256, 256), torch.randn(64, 256, 256)),
    ),
    "tensordot 64x64x64x64": lambda: (
        lambda a, b: torch.tensordot(a, b, ([1, 2], [0, 2])),
        (torch.randn(64, 64, 64), torch.randn(64, 64, 64)),
    ),
    "outer 4,096": lambda: (torch.outer, (torch.randn(4_096), torch.randn(4_096))),
    "baddbmm 12x512": lambda: (
        torch.baddbmm,
        (torch.randn(12, 512, 512), torch.randn(12, 512, 64), torch.randn(12, 64, 512)),
    ),
    "cumprod rows 1,000x1,000": lambda: (
        lambda x: x.cumprod(1),
        (1 + torch.randn(1_000, 1_000) / 100,),
    ),
    "cummin with indices 64x8,192": lambda: (lambda x: x.cummin(1), (torch.randn(64, 8_192),)),
    "logcumsumexp 64x8,192": lambda: (lambda x: x.logcumsumexp(1), (torch.randn(64, 8_192),)),
    "cumsum 1,000x1,000 axis 0": lambda: (lambda x: x.cumsum(0), (torch.randn(1_000, 1_000),)),
    "repeat_interleave of a constant 512x768": lambda: (
        lambda x: x.repeat_interleave(4, 1),
        (torch.randn(1, 8, 2_048, 64),),
    ),
    "tile 64x64x256": lambda: (lambda x: x.tile(1, 8, 8, 1), (torch.randn(1, 64, 64, 64),)),
    "rot90 3x1,024x1,024": lambda: (
        lambda x: torch.rot90(x, 1, (1, 2)),
        (torch.randn(3, 1_024, 1_024),),
    ),
    "unfold 14 of 224x224": lambda: (
        lambda x: x.unfold(2, 14, 14).unfold(3, 14, 14).reshape(1, 3, 256, 196),
        (torch.randn(1, 3, 224, 224),),
    ),
    "conv3d 3x16x112x112 by 7": lambda: (
        torch.nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3)),
        (torch.randn(1, 3, 16, 112, 112),),
    ),
    "conv_transpose2d grouped 64x64x64": lambda: (
        torch.nn.ConvTranspose2d(64, 64, 4, 2, 1, groups=64),
        (torch.randn(1, 64, 64, 64),),
    ),
    "conv_transpose1d 512x400 by 16": lambda: (
        torch.nn.ConvTranspose1d(512, 256, 16, 8, 4),
        (torch.randn(1, 512, 400),),
    ),
    "conv1d dilated 128x8,000": lambda: (
        torch.nn.Conv1d(128, 128, 7, padding=81, dilation=27),
        (torch.randn(1, 128, 8_000),),
    ),
    "conv2d 512x64x64": lambda: (
        torch.nn.Conv2d(320, 320, 3, padding=1),
        (torch.randn(1, 320, 64, 64),),
    ),
    "grouped conv2d 128x56x56": lambda: (
        torch.nn.Conv2d(128, 128, 3, padding=1, groups=32),
        (torch.randn(1, 128, 56, 56),),
    ),
    "max_pool1d 64x16,000": lambda: (
        lambda x: functional.max_pool1d(x, 5, 1, 2),
        (torch.randn(1, 64, 16_000),),
    ),
    "avg_pool3d 64x8x28x28": lambda: (
        lambda x: functional.avg_pool3d(x, 2),
        (torch.randn(1, 64, 8, 28, 28),),
    ),
    "max_pool2d 13 of 256x20x20": lambda: (
        lambda x: functional.max_pool2d(x, 13, 1, 6),
        (torch.randn(1, 256, 20, 20),),
    ),
    "fractional pooling by adaptive 64x100x100 to 33": lambda: (
        lambda x: functional.adaptive_avg_pool2d(x, 33),
        (torch.randn(1, 64, 100, 100),),
    ),
    "matrix_exp 64x64x64": lambda: (
        torch.linalg.matrix_exp,
        (torch.randn(64, 64, 64) / 16,),
    ),
    "inv of 1,000 3x3": lambda: (
        torch.linalg.inv,
        (torch.randn(1_000, 3, 3) + 3 * torch.eye(3),),
    ),
    "det of 1,000 3x3": lambda: (torch.linalg.det, (torch.randn(1_000, 3, 3),)),
    "solve 100 of 64x64": lambda: (
        torch.linalg.solve,
        (torch.randn(100, 64, 64) + 16 * torch.eye(64), torch.randn(100, 64, 4)),
    ),
    "fft2 512x512": lambda: (torch.fft.fft2, (torch.randn(512, 512, dtype=torch.complex64),)),
    "irfft 160,000": lambda: (torch.fft.irfft, (torch.randn(80_001, dtype=torch.complex64),)),
    "stft 10 s of 1,024": lambda: (
        lambda x, w: torch.stft(x, 1_024, 256, window=w, return_complex=True),
        (torch.randn(1, 160_000), torch.hann_window(1_024)),
    ),
    "fft convolution 65,536": lambda: (
        lambda x, k: torch.fft.irfft(torch.fft.rfft(x, 131_072) * torch.fft.rfft(k, 131_072)),
        (torch.randn(65_536), torch.randn(65_536)),
    ),
    "batched fft convolution 64x2,048": lambda: (
        lambda x, k: torch.fft.irfft(torch.fft.rfft(x, n=4_096) * torch.fft.rfft(k, n=4_096)),
        (torch.randn(64, 2_048), torch.randn(64, 2_048)),
    ),
    "gru 256 bidirectional 500 steps": lambda: (
        torch.nn.GRU(256, 256, bidirectional=True),
        (torch.randn(500, 1, 256),),
    ),
    "lstm batch first 8x256": lambda: (
        torch.nn.LSTM(128, 256, batch_first=True),
        (torch.randn(8, 256, 128),),
    ),
    "rms_norm 2,048x2,048": lambda: (torch.nn.RMSNorm(2_048), (torch.randn(1, 2_048, 2_048),)),
    "layer_norm of channels 96x112x112": lambda: (
        lambda x: functional.layer_norm(x.permute(0, 2, 3, 1), (96,)).permute(0, 3, 1, 2),
        (torch.randn(1, 96, 112, 112),),
    ),
    "softmax axis 1 19x512x512": lambda: (
        lambda x: x.softmax(1),
        (torch.randn(1, 19, 512, 512),),
    ),
    "argmax axis 1 19x512x512": lambda: (
        lambda x: x.argmax(1),
        (torch.randn(1, 19, 512, 512),),
    ),
    "max axis 1 8,400x80": lambda: (lambda x: x.max(1), (torch.randn(8_400, 80),)),
    "std_mean 64x112x112": lambda: (
        lambda x: torch.std_mean(x, (2, 3)),
        (torch.randn(1, 64, 112, 112),),
    ),
    "aminmax 1M": lambda: (torch.aminmax, (torch.randn(1_000_000),)),
    "count_nonzero 1M": lambda: (torch.count_nonzero, (inputs.ids(2, 1_000_000),)),
    "cross_entropy 2D 19x256x256": lambda: (
        functional.cross_entropy,
        (torch.randn(1, 19, 256, 256), inputs.ids(19, 1, 256, 256)),
    ),
    "glu 512x3,000": lambda: (lambda x: functional.glu(x, 1), (torch.randn(1, 1_024, 3_000),)),
    "silu 512x11,008": lambda: (functional.silu, (torch.randn(512, 11_008),)),
    "sin 1M": lambda: (torch.sin, (torch.randn(1_000_000) * 100,)),
    "pow 1M": lambda: (lambda x: x**2.2, (torch.rand(1_000_000),)),
    "atan2 1M": lambda: (torch.atan2, (torch.randn(1_000_000), torch.randn(1_000_000))),
    "meshgrid 1,024": lambda: (
        lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="ij"), -1),
        (torch.randn(1_024), torch.randn(1_024)),
    ),
    "cartesian_prod 1,000x1,000": lambda: (
        torch.cartesian_prod,
        (torch.randn(1_000), torch.randn(1_000)),
    ),
    "block_diag 8 of 128": lambda: (
        lambda x: torch.block_diag(*x.unbind()),
        (torch.randn(8, 128, 128),),
    ),
    "vander 4,096": lambda: (lambda x: torch.vander(x, 16), (torch.rand(4_096),)),
}

DYNAMIC: dict[str, Callable[[], Call]] = {
    "rfft 48,000 dynamic": lambda: _along_first(torch.fft.rfft, 48_000),
    "fft convolution 1,024x8 dynamic": lambda: _along_first(_long_convolution, 1_024, 8),
    "rfft 10,007 dynamic": lambda: _along_first(torch.fft.rfft, 10_007),
    "embedding_bag 2,048x20 dynamic": lambda: (
        lambda i, w: functional.embedding_bag(i, w, mode="mean"),
        (inputs.ids(10_000, 2_048, 20), torch.randn(10_000, 32)),
    ),
    "svdvals 10 of 4x3 dynamic": lambda: _along_first(torch.linalg.svdvals, 10, 4, 3),
    "cumsum 1,000,000 dynamic": lambda: _along_first(lambda x: x.cumsum(0), 1_000_000),
    "logcumsumexp 1,000,000 dynamic": lambda: _along_first(lambda x: x.logcumsumexp(0), 1_000_000),
    "fft2 256x256 dynamic": lambda: _along_first(lambda x: torch.fft.rfft2(x).abs(), 256, 256),
    "stft 160,000 dynamic": lambda: (
        lambda x, w: torch.stft(x, 400, 160, window=w, return_complex=True),
        (torch.randn(160_000), torch.hann_window(400)),
    ),
    "interpolate bilinear rows dynamic": lambda: _along_first(
        lambda x: functional.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"), 512, 512
    ),
    "interpolate bicubic rows dynamic": lambda: _along_first(
        lambda x: functional.interpolate(x[None, None], scale_factor=2.0, mode="bicubic"), 256, 256
    ),
    "reflection pad 160,000 dynamic": lambda: _along_first(
        lambda x: functional.pad(x[None], (200, 200), mode="reflect"), 160_000
    ),
    "cumprod 100,000 dynamic": lambda: (lambda x: x.cumprod(0), (1 + torch.randn(100_000) / 500,)),
    "logcumsumexp 100,000 dynamic": lambda: _along_first(lambda x: x.logcumsumexp(0), 100_000),
    "kthvalue 100,001 dynamic": lambda: _along_first(lambda x: x.kthvalue(1_000).values, 100_001),
    "quantile 100,000 dynamic": lambda: _along_first(lambda x: torch.quantile(x, 0.9), 100_000),
    "bincount 100,000 dynamic": lambda: (
        lambda x: torch.bincount(x, minlength=1_000),
        (inputs.ids(1_000, 100_000),),
    ),
    "histc 100,000 dynamic": lambda: _along_first(lambda x: torch.histc(x, 64, -4, 4), 100_000),
    "index_add 100,000 dynamic": lambda: (
        lambda y, i: torch.zeros(1_000, 16).index_add(0, i[: y.shape[0]], y),
        (torch.randn(100_000, 16), inputs.ids(1_000, 100_001)),
    ),
    "argmax 100,000x80 dynamic": lambda: _along_first(lambda x: x.argmax(1), 100_000, 80),
    "adaptive_avg_pool rows dynamic": lambda: _along_first(
        lambda x: functional.adaptive_avg_pool2d(x[None, None], 7), 230, 224
    ),
    "gru 1,000 steps dynamic": lambda: (torch.nn.GRU(64, 64), (torch.randn(1_000, 1, 64),)),
    "attention causal 1,024 dynamic": lambda: _along_first(
        lambda x: functional.scaled_dot_product_attention(
            x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), is_causal=True
        ),
        1_024,
        8,
        64,
    ),
    "unique_consecutive 100,000 dynamic": lambda: (
        torch.unique_consecutive,
        (torch.sort(inputs.ids(5_000, 100_000)).values,),
    ),
    "masked_scatter 100,000 dynamic": lambda: _along_first(
        lambda x: x.masked_scatter(x > 0, x * 2), 100_000
    ),
    "group_norm rows dynamic": lambda: _along_first(
        lambda x: functional.group_norm(x.permute(1, 0)[None], 8), 50_000, 64
    ),
    "grid_sample rows dynamic": lambda: _along_first(
        lambda g: functional.grid_sample(torch.ones(1, 3, 64, 64), g[None], align_corners=False),
        256,
        256,
        2,
    ),
    "max_pool2d rows dynamic": lambda: _along_first(
        lambda x: functional.max_pool2d(x[None], 3, 2, 1), 64, 112, 112
    ),
    "pdist 512 dynamic": lambda: _along_first(functional.pdist, 512, 16),
    "sort rows 1,000x1,000 dynamic": lambda: _along_first(lambda x: x.sort(1).values, 1_000, 1_000),
}

MORE = STATIC | DYNAMIC
