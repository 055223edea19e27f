"""Sorting, indexing and scatter ops, and ops along long axes, at real sizes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from . import real_inputs as inputs
from .real_inputs import Call


def _unique_rows(x: torch.Tensor) -> Call:
    def unique(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.unique(x, dim=0, return_inverse=True, return_counts=True)

    return unique, (x,)


SELECTION: dict[str, Callable[[], Call]] = {
    "sort 1M": lambda: (lambda x: torch.sort(x).values, (torch.randn(1_000_000),)),
    "argsort stable 100,000": lambda: (
        lambda x: torch.argsort(x, stable=True),
        (torch.randn(100_000),),
    ),
    "sort rows 1,024x1,024": lambda: (
        lambda x: torch.sort(x, -1).values,
        (torch.randn(1_024, 1_024),),
    ),
    "msort 100,000": lambda: (torch.msort, (torch.randn(100_000),)),
    "topk 100 of 1M": lambda: (lambda x: x.topk(100).values, (torch.randn(1_000_000),)),
    "topk 8 of 4,096x128": lambda: (lambda x: x.topk(8).values, (torch.randn(4_096, 128),)),
    "topk 5,000 of 100,000": lambda: (lambda x: x.topk(5_000).values, (torch.randn(100_000),)),
    "median 1M": lambda: (torch.median, (torch.randn(1_000_001),)),
    "quantile 100,000": lambda: (lambda x: x.quantile(0.9), (torch.randn(100_000),)),
    "mode 100,000": lambda: (lambda x: x.mode().values, (inputs.ids(1_000, 100_000),)),
    "unique 1M": lambda: (torch.unique, (inputs.ids(5_000, 1_000_000),)),
    "unique of floats 100,000": lambda: (torch.unique, (torch.randn(100_000),)),
    "unique rows 1,000x4": lambda: (
        lambda x: torch.unique(x, dim=0),
        (inputs.ids(5, 1_000, 4),),
    ),
    "unique rows 20,000x3": lambda: _unique_rows(inputs.ids(20, 20_000, 3)),
    "unique rows 10,000x3 dynamic": lambda: _unique_rows(inputs.ids(20, 10_000, 3)),
    "unique rows 1,000x64": lambda: _unique_rows(torch.randn(1_000, 64)),
    "unique_consecutive 1M": lambda: (
        torch.unique_consecutive,
        (torch.sort(inputs.ids(5_000, 1_000_000)).values,),
    ),
    "bincount 1M": lambda: (
        lambda x: torch.bincount(x, minlength=1_000),
        (inputs.ids(1_000, 1_000_000),),
    ),
    "searchsorted rows 1,000x1,000": lambda: (
        torch.searchsorted,
        (torch.sort(torch.randn(1_000, 1_000)).values, torch.randn(1_000, 100)),
    ),
    "gather 1M": lambda: (
        lambda x, i: x.gather(0, i),
        (torch.randn(1_000_000), inputs.ids(1_000_000, 1_000_000)),
    ),
    "scatter 1M": lambda: (
        lambda x, i, y: x.scatter(0, i, y),
        (torch.zeros(1_000_000), torch.randperm(1_000_000), torch.randn(1_000_000)),
    ),
    "scatter_add 1M": lambda: (
        lambda x, i, y: x.scatter_add(0, i, y),
        (torch.zeros(10_000), inputs.ids(10_000, 1_000_000), torch.randn(1_000_000)),
    ),
    "scatter_reduce amax 1M": lambda: inputs.scatter_reduce("amax"),
    "scatter_reduce mean 1M": lambda: inputs.scatter_reduce("mean"),
    "scatter_reduce prod 1M": lambda: inputs.scatter_reduce("prod"),
    "index_put 1M": lambda: inputs.index_put(1_000_000, accumulate=False),
    "index_put accumulate 1M": lambda: inputs.index_put(1_000_000, accumulate=True),
    "index 2D 1M": lambda: (
        lambda x, i, j: x[i, j],
        (torch.randn(2_000, 2_000), inputs.ids(2_000, 1_000_000), inputs.ids(2_000, 1_000_000)),
    ),
    "index_select 100,000 of 100,000x64": lambda: (
        lambda x, i: x.index_select(0, i),
        (torch.randn(100_000, 64), inputs.ids(100_000, 100_000)),
    ),
    "index_fill 1M": lambda: (
        lambda x, i: x.index_fill(0, i, 2.0),
        (torch.randn(10_000, 100), inputs.ids(10_000, 1_000)),
    ),
    "index_copy 10,000x64": lambda: (
        lambda x, i, y: x.index_copy(0, i, y),
        (torch.zeros(20_000, 64), torch.randperm(20_000)[:10_000], torch.randn(10_000, 64)),
    ),
    "index_reduce amax 100,000": lambda: (
        lambda x, i, y: x.index_reduce(0, i, y, "amax"),
        (torch.zeros(1_000, 16), inputs.ids(1_000, 100_000), torch.randn(100_000, 16)),
    ),
    "take_along_dim 1,000x1,000": lambda: (
        lambda x, i: x.take_along_dim(i, 1),
        (torch.randn(1_000, 1_000), inputs.ids(1_000, 1_000, 1_000)),
    ),
    "put 1M": lambda: (
        lambda x, i, y: x.put(i, y),
        (torch.zeros(1_000_000), torch.randperm(1_000_000), torch.randn(1_000_000)),
    ),
    "boolean index rows 100,000x16": lambda: (
        lambda x, m: x[m],
        (torch.randn(100_000, 16), torch.rand(100_000) > 0.5),
    ),
    "masked_fill 1M": lambda: (
        lambda x, m: x.masked_fill(m, 0.0),
        (torch.randn(1_000_000), torch.rand(1_000_000) > 0.5),
    ),
    "nonzero 1,000x1,000": lambda: (torch.nonzero, ((torch.rand(1_000, 1_000) > 0.9).int(),)),
    "argwhere 1M": lambda: (torch.argwhere, ((torch.rand(1_000_000) > 0.5).int(),)),
    "embedding_bag sum 20,000": lambda: inputs.bags("sum"),
    "embedding_bag mean 20,000": lambda: inputs.bags("mean"),
    "embedding_bag max 20,000": lambda: inputs.bags("max"),
    "isin 1M in 1,000": lambda: (
        torch.isin,
        (inputs.ids(50_000, 1_000_000), inputs.ids(50_000, 1_000)),
    ),
    "repeat_interleave 100,000": lambda: (
        lambda x, n: torch.repeat_interleave(x, n, 0),
        (torch.randn(100_000, 8), inputs.ids(4, 100_000)),
    ),
    "segment_reduce 100,000": lambda: (
        lambda x, n: torch.segment_reduce(x, "sum", lengths=n),
        (torch.randn(100_000), torch.full((1_000,), 100)),
    ),
    "combinations 256": lambda: (torch.combinations, (torch.randn(256),)),
    "tril_indices 1,000": lambda: (
        lambda x: x[tuple(torch.tril_indices(1_000, 1_000))],
        (torch.randn(1_000, 1_000),),
    ),
    "diagonal_scatter 1,024": lambda: (
        lambda x, y: x.diagonal_scatter(y),
        (torch.randn(1_024, 1_024), torch.randn(1_024)),
    ),
    "roll 1M": lambda: (lambda x: x.roll(1_000), (torch.randn(1_000_000),)),
}

SEQUENCES: dict[str, Callable[[], Call]] = {
    "cumsum 1M": lambda: (lambda x: x.cumsum(0), (torch.randn(1_000_000),)),
    "cumsum of integers 1M": lambda: (lambda x: x.cumsum(0), (inputs.ids(100, 1_000_000),)),
    "cumsum axis 0 8,192x64": lambda: (lambda x: x.cumsum(0), (torch.randn(8_192, 64),)),
    "cumprod 1M": lambda: (lambda x: x.cumprod(0), (1 + torch.randn(1_000_000) / 1_000,)),
    "cummax 1M": lambda: (lambda x: x.cummax(0).values, (torch.randn(1_000_000),)),
    "logcumsumexp 1M": lambda: (lambda x: x.logcumsumexp(0), (torch.randn(1_000_000),)),
    "diff 1M": lambda: (torch.diff, (torch.randn(1_000_000),)),
    "trapezoid 1M": lambda: (torch.trapezoid, (torch.randn(1_000_000),)),
    "logsumexp 64x30,522": lambda: (lambda x: x.logsumexp(1), (torch.randn(64, 30_522),)),
    "log_softmax 512x30,522": lambda: (lambda x: x.log_softmax(1), (torch.randn(512, 30_522),)),
    "norm 1M": lambda: (torch.linalg.vector_norm, (torch.randn(1_000_000),)),
    "sum 1M": lambda: (torch.sum, (torch.randn(1_000_000),)),
    "prod 1M": lambda: (torch.prod, (1 + torch.randn(1_000_000) / 1_000,)),
    "std 1,000x1,000": lambda: (lambda x: x.std(1), (torch.randn(1_000, 1_000),)),
    "stft 10 s": lambda: (
        lambda x, w: torch.stft(x, 400, 160, window=w, return_complex=True),
        (torch.randn(1, 160_000), torch.hann_window(400)),
    ),
    "istft 10 s": lambda: inputs.istft(10),
    "rfft 160,000": lambda: (torch.fft.rfft, (torch.randn(160_000),)),
    "fft 65,536": lambda: (torch.fft.fft, (torch.randn(65_536, dtype=torch.complex64),)),
    "rfft2 512x512": lambda: (torch.fft.rfft2, (torch.randn(512, 512),)),
    "irfft2 256x256": lambda: (torch.fft.irfft2, (torch.randn(256, 129, dtype=torch.complex64),)),
    "fftn 32x32x32": lambda: (torch.fft.fftn, (torch.randn(32, 32, 32, dtype=torch.complex64),)),
    "hfft 10,000": lambda: (torch.fft.hfft, (torch.randn(5_001, dtype=torch.complex64),)),
    "fftshift 1,024x1,024": lambda: (torch.fft.fftshift, (torch.randn(1_024, 1_024),)),
    "gru 1,000 steps": lambda: (torch.nn.GRU(64, 64), (torch.randn(1_000, 1, 64),)),
    "rnn 1,000 steps": lambda: (torch.nn.RNN(64, 64), (torch.randn(1_000, 1, 64),)),
    "lstm bidirectional 2 layers 1,000 steps": lambda: (
        torch.nn.LSTM(64, 64, 2, bidirectional=True),
        (torch.randn(1_000, 1, 64),),
    ),
    "lstm 512 wide 1,000 steps": lambda: (torch.nn.LSTM(512, 512), (torch.randn(1_000, 1, 512),)),
    "scan 10,000 steps": lambda: inputs.scan(10_000),
    "while_loop 100,000 steps": lambda: inputs.counted_loop(100_000),
    "ctc_loss 500 steps": inputs.ctc,
    "cross_entropy 512x30,522": lambda: (
        functional.cross_entropy,
        (torch.randn(512, 30_522), inputs.ids(30_522, 512)),
    ),
    "attention causal 12x1,024": lambda: (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        tuple(torch.randn(1, 12, 1_024, 64) for _ in range(3)),
    ),
    "multi-head attention 512x768": lambda: (
        lambda x: functional.multi_head_attention_forward(
            x,
            x,
            x,
            768,
            12,
            torch.ones(2_304, 768) / 768,
            torch.zeros(2_304),
            None,
            None,
            False,
            0.0,
            torch.eye(768),
            torch.zeros(768),
            training=False,
        )[0],
        (torch.randn(512, 1, 768),),
    ),
    "bilinear 512x128": lambda: (
        torch.nn.Bilinear(128, 128, 64),
        (torch.randn(512, 128), torch.randn(512, 128)),
    ),
    "erfinv 1M": lambda: (torch.erfinv, (torch.rand(1_000_000) * 1.8 - 0.9,)),
    "lgamma 1M": lambda: (torch.lgamma, (torch.rand(1_000_000) * 10 + 0.1,)),
    "digamma 1M": lambda: (torch.digamma, (torch.rand(1_000_000) * 10 + 0.1,)),
    "igamma 100,000": lambda: (
        torch.igamma,
        (torch.rand(100_000) * 5 + 0.1, torch.rand(100_000) * 5),
    ),
    "bessel_j0 1M": lambda: (torch.special.bessel_j0, (torch.rand(1_000_000) * 20,)),
    "zeta 100,000": lambda: (
        torch.special.zeta,
        (torch.rand(100_000) * 5 + 1.5, torch.rand(100_000) + 0.5),
    ),
    "polygamma 100,000": lambda: (
        lambda x: torch.polygamma(2, x),
        (torch.rand(100_000) * 5 + 0.5,),
    ),
    "nan_to_num 1M": lambda: (torch.nan_to_num, (torch.randn(1_000_000),)),
    "remainder 1M": lambda: (lambda x: torch.remainder(x, 0.7), (torch.randn(1_000_000),)),
    "complex product 1,000x16": lambda: (
        lambda x: x.prod(1),
        (torch.randn(1_000, 16, dtype=torch.complex64),),
    ),
    "complex cumprod 16x1,000": lambda: (
        lambda x: torch.polar(torch.ones_like(x), x).cumprod(1),
        (torch.randn(16, 1_000),),
    ),
    "complex multiply 1M": lambda: (
        torch.mul,
        (
            torch.randn(1_000_000, dtype=torch.complex64),
            torch.randn(1_000_000, dtype=torch.complex64),
        ),
    ),
    "angle 1M": lambda: (torch.angle, (torch.randn(1_000_000, dtype=torch.complex64),)),
    "bitwise shifts 1M": lambda: (lambda x: (x << 3) ^ (x >> 2), (inputs.ids(1_000, 1_000_000),)),
    "fake_quantize 1M": lambda: (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127),
        (torch.randn(1_000_000),),
    ),
    "int64 products 1M": lambda: (lambda x: (x * 31 + 7) % 1_009, (inputs.ids(1_000, 1_000_000),)),
    "strided view 1,000 of 16": lambda: (
        lambda x: x.unfold(0, 400, 160).contiguous(),
        (torch.randn(160_000),),
    ),
}
