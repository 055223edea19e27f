"""Families whose size is the length of a sequence: transforms, searches, scans, sorts, loops."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan
from torch.nn import functional

from coreai_torch.composite_ops import GatedDeltaUpdate

from .family import Call, Family, of

_PASSES = "each halving of an interval is one pass over the values"
_SORT = "coreai.sort: the runtime's single op is n log n, about 2.6 µs an element at 100,000"


def _sorted(n: int) -> Tensor:
    return torch.randn(n).sort().values


def _search(values: Tensor, x: Tensor) -> list[Tensor]:
    return [torch.searchsorted(values, x), torch.bucketize(x, values)]


def _bags(n: int) -> Call:
    def run(w: Tensor, i: Tensor, o: Tensor) -> list[Tensor]:
        return [functional.embedding_bag(i, w, o, mode=mode) for mode in ("sum", "max")]

    return run, (torch.randn(50, 4), torch.randint(0, 50, (n,)), torch.arange(0, n, 8))


def _segments(n: int) -> Call:
    return (
        lambda x, k: torch.segment_reduce(x, "max", lengths=k),
        (torch.randn(n), torch.full((n // 8,), 8)),
    )


class _Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.LSTM(4, 4), torch.nn.GRU(4, 4)])
        self.layers += [torch.nn.RNN(4, 4), torch.nn.RNN(4, 4, nonlinearity="relu")]

    def forward(self, x: Tensor) -> list[Tensor]:
        return [layer(x)[0] for layer in self.layers]


def _scan(n: int) -> Call:
    def combine(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        state = state * 0.9 + x
        return state, state * 1.0

    def run(x: Tensor) -> Any:
        return torch._higher_order_ops.scan(combine, torch.zeros(1_024), x)

    return run, (torch.randn(n, 1_024),)  # wide, so that a copy of all rows in each step shows


def _while_loop(n: int) -> Call:
    def run(x: Tensor) -> Any:
        return torch.while_loop(
            lambda k, y: k < n, lambda k, y: (k + 1, y * 0.999 + 1.0), (torch.tensor(0), x)
        )

    return run, (torch.randn(4),)


def _gated(n: int) -> Call:
    """Wide rows, so that a copy of all outputs in each step shows."""
    rows = (torch.randn(1, 4, n, 64) for _ in range(3))
    return GatedDeltaUpdate(), (
        *rows,
        -torch.rand(1, 4, n),
        torch.rand(1, 4, n),
        torch.zeros(1, 4, 64, 64),
    )


def _ctc(n: int) -> Call:
    def loss(x: Tensor, labels: Tensor) -> Tensor:
        lengths = torch.tensor([x.shape[0]]), torch.tensor([8])
        return functional.ctc_loss(x.log_softmax(-1), labels, *lengths)

    return loss, (torch.randn(n, 1, 12), torch.randint(1, 12, (1, 8)))


def _recurrence(n: int) -> Call:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    def run(x: Tensor, y: Tensor) -> Any:
        return associative_scan(combine, (x, y), 0, combine_mode="generic")

    return run, (torch.rand(n, 4), torch.randn(n, 4))


def _writes(n: int) -> Call:
    def run(x: Tensor) -> Tensor:
        result = torch.zeros(2, n, 8_192)
        for row in range(n):
            x = x * 0.5
            result[:1, row] = x
        return result

    return run, (torch.randn(8_192),)


_FFT = "_fft_c2c _fft_r2c _fft_c2r"
_TRANSFORMS = (
    Family(
        "fft, rfft, irfft, fft2, stft (n above 256)",
        "n log n",
        of(torch.fft.rfft),
        program="log n",
        constants="n",
        reason="one stage for each factor of about 32, each with n twiddle factors",
        lowers="_fft_r2c",
        like=_FFT,
    ),
    Family(
        "fft and the like of a length with a prime factor above 256",
        "n log n",
        lambda n: (torch.fft.rfft, (torch.randn({521: 521, 4_168: 4_159}[n]),)),
        n=521,
        program="log n",
        constants="n",
        reason="a convolution of more than twice the length (Bluestein)",
        lowers="_fft_r2c",
        like=_FFT,
    ),
    Family(
        "fft and the like of a dynamic length n, unless its upper bound is at most 256",
        "n^(4/3)",
        of(lambda x: torch.fft.rfft(x).abs()),
        n=4_096,
        reason="three factors that the program looks for: 7 ms for 48,000, 0.2 s for 1,000,000. A "
        "bound above 20,000,000 is rejected",
        lowers="_fft_r2c",
        like=_FFT,
        sizes="dynamic",
    ),
    Family(
        "the same, of a dynamic length with large prime factors",
        "n^(4/3)",
        lambda n: (
            lambda x: torch.fft.rfft(x).abs(),
            (torch.randn({4_093: 4_093, 32_744: 32_749}[n]),),
        ),
        n=4_093,
        reason="a convolution of more than 2 n elements (Bluestein) with three factors near its "
        "cube root: 80 ms for 48,017, 13 s for 3,000,017",
        lowers="_fft_r2c",
        like=_FFT,
        sizes="dynamic",
    ),
    Family(
        "fft and the like of n up to 256, static or dynamic",
        "n^2",
        of(lambda x: torch.fft.fft(torch.fft.rfft(x)), 64),
        n=32,
        constants="n^2",
        memory="n^2",
        reason="one product with the full matrix, which the program computes for a dynamic length",
        lowers="_fft_r2c _fft_c2c",
        like=_FFT,
    ),
)

_SEARCHES = (
    Family(
        "searchsorted, bucketize of one value in n",
        "log n",
        lambda n: (_search, (_sorted(n), torch.randn(256))),
        program="log n",
        reason=f"binary search; {_PASSES}",
        lowers="searchsorted bucketize",
        sizes="both",
    ),
    Family(
        "isin of n in n",
        "n log n",
        lambda n: (torch.isin, (torch.randint(0, n, (n,)), torch.randint(0, n, (n,)))),
        program="log n",
        reason="a sort, then a binary search",
        lowers="isin",
        sizes="both",
    ),
    Family(
        "segment_reduce of n elements in n / 8 segments",
        "n log n",
        _segments,
        program="log n",
        constants="n",
        reason="a binary search for the segment of each element, then a scatter",
        lowers="segment_reduce",
        sizes="both",
    ),
    Family(
        "embedding_bag of n indices in n / 8 bags",
        "n",
        _bags,
        constants="n",
        reason="sums of blocks of 3 rows, of 3 blocks and so on while there are more blocks than "
        "bags (a dynamic size: twice), which are scattered into their bags",
        lowers="embedding_bag",
        like="_embedding_bag _embedding_bag_forward_only",
        sizes="both",
    ),
    Family(
        "sort, argsort, topk, median, nanmedian, kthvalue, mode",
        "n log n",
        of(
            lambda x: [
                *(x.sort(), x.sort(stable=True), x.topk(5), x.mode()),
                *(x.kthvalue(5), x.median(), x.nanmedian()),
            ]
        ),
        constants="n",
        reason=_SORT,
        lowers="sort topk kthvalue median nanmedian mode",
        sizes="both",
    ),
    Family(
        "unique",
        "n log n",
        of(torch.unique),
        constants="n",
        reason=_SORT,
        lowers="_unique2",
        sizes="both",
    ),
    Family(
        "unique along an axis, of n rows",
        "n log n",
        lambda n: (lambda x: torch.unique(x, dim=0), (torch.randn(n, 3),)),
        constants="n",
        reason=f"a sort for each column. {_SORT}",
        lowers="unique_dim",
        sizes="both",
    ),
    Family(
        "unique along an axis, of rows with n columns",
        "n",
        lambda n: (lambda x: torch.unique(x, dim=1), (torch.randn(n, 16),)),
        n=64,
        reason="a sort for each column; those of more than 8 run in a loop",
        lowers="unique_dim",
        sizes="both",
    ),
)

_SCANS = (
    Family(
        "logcumsumexp",
        "n",
        of(lambda x: x.logcumsumexp(-1)),
        n=8_192,
        program="log n",
        reason="blocks of 16, each a table of 16 x 16; a dynamic size: three levels, then "
        "n²/16,777,216 pairs of blocks",
        lowers="logcumsumexp",
        sizes="both",
    ),
    Family(
        "cumsum",
        "n",
        of(lambda x: x.cumsum(-1)),
        n=4_096,
        reason="more than 8,192 floats in two stages, which takes 1.2 times as long as one, or 2.3 "
        "(2.7 with a dynamic size) if no divisor of n is the length of a run",
        lowers="cumsum",
        sizes="both",
    ),
    Family(
        "associative_scan of n elements",
        "n",
        _recurrence,
        n=64,
        program="log n",
        reason="torch's recursion halves the elements in each level",
    ),
)

_LOOPS = (
    Family(
        "lstm, gru, rnn over n steps",
        "n",
        lambda n: (_Recurrent(), (torch.randn(n, 1, 4),)),
        n=64,
        reason="loops, in blocks of 128 steps",
        lowers="lstm gru rnn_tanh rnn_relu",
        sizes="both",
    ),
    Family(
        "scan, map over n steps",
        "n",
        _scan,
        n=64,
        reason="like lstm",
        lowers="higher_order::scan",
        like="higher_order::map_impl",
        sizes="both",
    ),
    Family(
        "while_loop of n steps",
        "n",
        _while_loop,
        n=64,
        reason="a loop",
        lowers="higher_order::while_loop",
    ),
    Family(
        "GatedDeltaUpdate over n steps",
        "n",
        _gated,
        n=256,
        reason="like lstm; a strict export: n², a loop that copies all outputs in each step",
        lowers="higher_order::scan",
        sizes="both",
    ),
    Family("ctc_loss over n steps", "n", _ctc, n=64, reason="a loop"),
    Family(
        "n writes to parts of a tensor of n rows",
        "n",
        _writes,
        n=16,
        program="n",
        constants="n",
        reason="one concatenation; written one by one, the tensor is copied n times",
        lowers="slice_scatter select_scatter",
    ),
    Family(
        "split, unbind, stack, cat of n tensors",
        "n",
        lambda n: (lambda x: torch.stack(x.unbind(0)[::-1]), (torch.randn(n, 4),)),
        n=32,
        program="n",
        constants="n",
        reason="an op for each tensor",
        lowers="cat",
        like="split_with_sizes split_copy unbind_copy",
    ),
    Family(
        "special polynomials of degree n (a tensor of degrees)",
        "n",
        lambda n: (
            torch.special.legendre_polynomial_p,
            (torch.rand(64), torch.full((64,), n)),
        ),
        n=64,
        reason="a loop over the degrees up to the greatest, each step a pass over the elements",
        lowers="special_legendre_polynomial_p",
    ),
)

SEQUENCES = (*_TRANSFORMS, *_SEARCHES, *_SCANS, *_LOOPS)
