"""Calls at real sizes, one or more of every family of ops, in addition to `cases.py`.

`python -m benchmarks.ops.sweep` runs each within 90 processor seconds and 8 GB. A name that ends
with "dynamic" is exported with the first axis of its first argument dynamic.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from . import real_inputs as inputs
from . import vision_ops
from .real_heads import HEADS
from .real_inputs import Call
from .real_layers import LINEAR_ALGEBRA, WINDOWS
from .real_more import MORE
from .real_pixels import PIXELS
from .real_selection import SELECTION, SEQUENCES
from .real_writes import WRITES

DYNAMIC: dict[str, Callable[[], Call]] = {
    "cumsum 100,000 dynamic": lambda: (lambda x: x.cumsum(0), (torch.randn(100_000),)),
    "logcumsumexp 8,192 dynamic": lambda: (lambda x: x.logcumsumexp(0), (torch.randn(8_192),)),
    "cummax 100,000 dynamic": lambda: (lambda x: x.cummax(0).values, (torch.randn(100_000),)),
    "sort 100,000 dynamic": lambda: (lambda x: torch.sort(x).values, (torch.randn(100_000),)),
    "topk 50 of 151,936 dynamic": lambda: (lambda x: x.topk(50).values, (torch.randn(151_936),)),
    "median 100,001 dynamic": lambda: (torch.median, (torch.randn(100_001),)),
    "unique 100,000 dynamic": lambda: (torch.unique, (inputs.ids(5_000, 100_000),)),
    "searchsorted 10,000 dynamic": lambda: (
        torch.searchsorted,
        (torch.sort(torch.randn(10_000)).values, torch.randn(100_000)),
    ),
    "index_put 100,000 dynamic": lambda: (
        lambda x, i, y: x.index_put((i,), y),
        (torch.zeros(100_000), inputs.ids(50_000, 1_000), torch.randn(1_000)),
    ),
    "nonzero 100,000 dynamic": lambda: (torch.nonzero, ((torch.rand(100_000) > 0.5).int(),)),
    "masked_select 100,000 dynamic": lambda: (
        lambda x: x[x > 0],
        (torch.randn(100_000),),
    ),
    "attention 512 dynamic": lambda: (
        lambda x: functional.scaled_dot_product_attention(
            x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1)
        ),
        (torch.randn(512, 12, 64),),
    ),
    "lstm 1,000 steps dynamic": lambda: (torch.nn.LSTM(64, 64), (torch.randn(1_000, 1, 64),)),
    "rfft 4,096 dynamic": lambda: (torch.fft.rfft, (torch.randn(4_096),)),
    "cdist 1,024 dynamic": lambda: (torch.cdist, (torch.randn(1_024, 16), torch.randn(512, 16))),
    "unfold 16,000 dynamic": lambda: (
        lambda x: x.unfold(0, 400, 160).contiguous(),
        (torch.randn(16_000),),
    ),
    "roll 100,000 dynamic": lambda: (lambda x: x.roll(10), (torch.randn(100_000),)),
    "repeat_interleave 10,000 dynamic": lambda: (
        lambda x: x.repeat_interleave(3, 0),
        (torch.randn(10_000, 8),),
    ),
    "tril 1,024 dynamic": lambda: (torch.tril, (torch.randn(1_024, 1_024),)),
    "conv1d 16,000 dynamic": lambda: (
        lambda x: functional.conv1d(x.view(1, 1, -1), torch.ones(8, 1, 9), padding=4),
        (torch.randn(16_000),),
    ),
}

VISION: dict[str, Callable[[], Call]] = {
    "roi_align 300 of 64x200x200": lambda: (
        vision_ops.pool,
        (torch.randn(1, 64, 200, 200), vision_ops.regions(300, 700)),
    ),
    "deform_conv2d 64x56x56": lambda: (
        vision_ops.deformed,
        (
            torch.randn(1, 64, 56, 56),
            torch.randn(64, 64, 3, 3),
            torch.randn(1, 18, 56, 56),
            torch.rand(1, 9, 56, 56),
            torch.randn(64),
        ),
    ),
}

PARTS = (
    *(LINEAR_ALGEBRA, WINDOWS, SELECTION, SEQUENCES, DYNAMIC, VISION, HEADS, MORE, WRITES),
    PIXELS,
)
REAL_SIZES = {name: make for part in PARTS for name, make in part.items()}

# Calls above the limits, with the runtime's own op that most of the time is spent in.
_CONCAT = "`coreai.concat` takes 20 to 30 ns for each element, torch's 0.07"
_PAD = "`coreai.pad` takes 110 ns for each element; devices merge it into the convolution"
_SCATTER = "`coreai.scatter_along_axis` takes 55 ns for each element"
_ROTATIONS = "rotations of all pairs of columns, each round a product of n x n matrices"
_BULGE = "QR iteration: one bulge moves through the matrix, a step at a time"
EXPLAINED = {
    "cat 16 and 48 channels of 56x56": _CONCAT,
    "depthwise convolution, stride 2, 96x112x112": _PAD,
    "index_add 20,000x128 in 64": _SCATTER,
    "scatter_reduce amax 30,000x64 in 2,000": f"{_SCATTER}, and there are three",
    "temporal shift 8x64x56x56": _CONCAT,
    **dict.fromkeys(("svd 128", "eigh 128", "eigvalsh 256"), _ROTATIONS),
    **dict.fromkeys(("eig 32", "eig 64", "eig 256", "eigvals 16", "eigvals 32"), _BULGE),
    **dict.fromkeys(("eigvals 64", "eigvals 64 of probabilities", "eigvals 128"), _BULGE),
}
