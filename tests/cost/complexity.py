"""The declared cost of lowerings, as a function of one size n.

`time` is the declared growth of the time to run; the program itself (ops) and its constants have
declared growths too. A family that is not linear has a reason. `docs/benchmarks.md` prints the
table, and `test_growth.py` measures every family that has a `call`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from coreai_torch.ops._lib.bin_maximum import Spans, greatest_in_bins

GROWTH: dict[str, Callable[[float], float]] = {
    "1": lambda n: 1.0,
    "log n": math.log2,
    "n": lambda n: n,
    "n log n": lambda n: n * math.log2(n),
    "log^2 n": lambda n: math.log2(n) ** 2,
    "n log^2 n": lambda n: n * math.log2(n) ** 2,
    "n^(4/3)": lambda n: n ** (4 / 3),
    "n^2": lambda n: n**2,
    "n^3": lambda n: n**3,
    "n^4": lambda n: n**4,
}

Call = tuple[Any, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Family:
    """Ops that share an algorithm, and a call of it with one size."""

    ops: str
    time: str
    call: Callable[[int], Call] | None = None
    n: int = 512  # measured at n and 8 n
    program: str = "1"
    constants: str = "1"
    reason: str = ""


def _nms(n: int) -> Call:
    corner = torch.rand(n, 2) * 40  # many overlaps, so that few boxes are kept
    boxes = torch.cat([corner, corner + 20 + torch.rand(n, 2) * 20], 1)
    return lambda b, s: torch.ops.torchvision.nms(b, s, 0.3), (boxes, torch.rand(n))


def _fold(n: int) -> Call:
    side = math.isqrt(n)
    columns = torch.randn(1, 4 * 9, side * side)
    return lambda x: functional.fold(x, side, 3, padding=1), (columns,)


def _scan(n: int) -> Call:
    def combine(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        state = state * 0.9 + x
        return state, state * 1.0

    def run(x: Tensor) -> Any:
        return torch._higher_order_ops.scan(combine, torch.zeros(4), x)

    return run, (torch.randn(n, 4),)


def _while_loop(n: int) -> Call:
    def run(x: Tensor) -> Any:
        return torch.while_loop(
            lambda k, y: k < n, lambda k, y: (k + 1, y * 0.999 + 1.0), (torch.tensor(0), x)
        )

    return run, (torch.randn(4),)


def _grid(n: int) -> Call:
    grid = torch.rand(1, n // 32, 32, 2) * 2 - 1
    picture = torch.randn(1, 2, 16, 16)
    return (
        lambda x, g: functional.grid_sample(x, g, "bicubic", align_corners=False),
        (picture, grid),
    )


def _writes(n: int) -> Call:
    def run(x: Tensor) -> Tensor:
        result = torch.zeros(2, n, 1_024)
        for row in range(n):
            x = x * 0.5
            result[:1, row] = x
        return result

    return run, (torch.randn(1_024),)


def _rectangles(n: int) -> Call:
    side = math.isqrt(n)
    first = torch.randint(0, side // 2, (64, 7))
    spans = Spans(first, first + 1 + torch.arange(64 * 7).reshape(64, 7) % (side // 2))

    def run(x: Tensor, first: Tensor, end: Tensor) -> Tensor:
        owner = torch.zeros(64, dtype=torch.int64)
        return greatest_in_bins(x, owner, Spans(first, end), Spans(first, end)).value

    return run, (torch.randn(1, 4, side, side), *spans)


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


def _recurrence(n: int) -> Call:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    def run(x: Tensor, y: Tensor) -> Any:
        return associative_scan(combine, (x, y), 0, combine_mode="generic")

    return run, (torch.rand(n, 4), torch.randn(n, 4))


def _sorted(n: int) -> Tensor:
    return torch.randn(n).sort().values


def _of(function: Callable[[Tensor], Any], *shape: int) -> Callable[[int], Call]:
    """Return a call with one float tensor, whose last axis is n."""
    return lambda n: (function, (torch.randn(*shape, n),))


_PASSES = "each halving of an interval is one pass over the values"
_SORT = "coreai.sort: the run time's single op is n log n, about 2.6 µs an element at 100,000"

FAMILIES = (
    Family(
        "fft, rfft, irfft, fft2, stft (n above 256)",
        "n log n",
        _of(torch.fft.rfft),
        program="log n",
        constants="n",
        reason="one stage for each factor of about 32, each with n twiddle factors",
    ),
    Family(
        "fft and the like of a length with a prime factor above 256",
        "n log n",
        lambda n: (torch.fft.rfft, (torch.randn({521: 521, 4_168: 4_159}[n]),)),
        n=521,
        program="log n",
        constants="n",
        reason="a convolution of more than twice the length (Bluestein)",
    ),
    Family(
        "fft and the like of a dynamic length n, unless its upper bound is at most 256",
        "n^(4/3)",
        reason="three factors that the program looks for: 7 ms for 48,000, 0.2 s for 1,000,000. If "
        "they are large, a convolution of more than 2 n elements (Bluestein) with three factors "
        "near its cube root: 80 ms for 48,017, 13 s for 3,000,017. Memory is linear. A bound above "
        "20,000,000 is rejected",
    ),
    Family(
        "fft and the like of n up to 256, static or dynamic",
        "n^2",
        constants="n^2",
        reason="one product with the full matrix, which the program computes for a dynamic length",
    ),
    Family(
        "searchsorted, bucketize of one value in n",
        "log n",
        lambda n: (torch.searchsorted, (_sorted(n), torch.randn(256))),
        program="log n",
        reason=f"binary search; {_PASSES}",
    ),
    Family(
        "isin of n in n",
        "n log n",
        lambda n: (torch.isin, (torch.randint(0, n, (n,)), torch.randint(0, n, (n,)))),
        program="log n",
        reason="a sort, then a binary search",
    ),
    Family(
        "segment_reduce of n elements in n / 8 segments",
        "n log n",
        lambda n: (
            lambda x, k: torch.segment_reduce(x, "max", lengths=k),
            (torch.randn(n), torch.full((n // 8,), 8)),
        ),
        program="log n",
        constants="n",
        reason="a binary search for the segment of each element, then a scatter",
    ),
    Family(
        "embedding_bag of n indices in n / 8 bags",
        "n",
        lambda n: (
            lambda w, i, o: functional.embedding_bag(i, w, o, mode="sum"),
            (torch.randn(50, 4), torch.randint(0, 50, (n,)), torch.arange(0, n, 8)),
        ),
        constants="n",
        reason="sums of blocks of 27 rows, which are scattered into their bags",
    ),
    Family("fold (col2im)", "n", _fold, constants="n", reason="one gathered row per overlap"),
    Family(
        "logcumsumexp",
        "n",
        _of(lambda x: x.logcumsumexp(-1)),
        program="log n",
        reason="blocks of 16, each a table of 16 x 16; a dynamic size: n²/4096 pairs of blocks",
    ),
    Family(
        "cumsum",
        "n",
        _of(lambda x: x.cumsum(-1)),
        reason="more than 8,192 floats in two stages, which takes 1.2 times as long as one, or 2.3 "
        "(2.7 with a dynamic size) if no divisor of n is the length of a run",
    ),
    Family("cumprod", "n", _of(lambda x: x.cumprod(-1))),
    Family("cummax, cummin", "n", _of(lambda x: x.cummax(-1)), constants="n"),
    Family(
        "torchvision::nms",
        "n^2",
        _nms,
        n=64,
        constants="n",
        reason="a pass over the boxes for each box kept, which is n² if all are kept",
    ),
    Family("topk of few", "n", _of(lambda x: x.topk(5)), n=8_192, constants="n"),
    Family("topk of many", "n log n", reason=_SORT),
    Family(
        "median, nanmedian, kthvalue (of 4,096 elements or more, or dynamic)",
        "n",
        _of(lambda x: x.kthvalue(5)),
        n=4_096,
        constants="n",
        reason="32 passes, one for each bit of the result",
    ),
    Family("sort, argsort, mode", "n log n", _of(torch.sort), reason=_SORT),
    Family(
        "unique",
        "n log n",
        _of(torch.unique),
        constants="n",
        reason=f"{_SORT}. Integers within a range of 16 n are counted instead, with a table of it",
    ),
    Family(
        "unique along an axis",
        "n^2",
        lambda n: (lambda x: torch.unique(x, dim=0), (torch.randn(n, 2),)),
        n=64,
        constants="n",
        reason="the run time sorts single numbers only, so each row is compared with every row",
    ),
    Family("roll", "n", lambda n: (lambda x: x.roll(3, 0), (torch.randn(n, 8),)), constants="n"),
    Family("one_hot", "n", lambda n: (lambda x: functional.one_hot(x, 9), (torch.arange(n) % 9,))),
    Family(
        "repeat_interleave",
        "n",
        lambda n: (torch.repeat_interleave, (torch.randn(n), torch.arange(n) % 3)),
    ),
    Family(
        "masked_scatter",
        "n",
        lambda n: (torch.masked_scatter, (torch.randn(n), torch.rand(n) > 0.5, torch.randn(n))),
        constants="n",
    ),
    Family("grid_sample", "n", _grid),
    Family(
        "adaptive_avg_pool, adaptive_max_pool",
        "n",
        lambda n: (lambda x: functional.adaptive_avg_pool1d(x, n // 10), (torch.randn(1, 4, n),)),
        constants="n",
    ),
    Family(
        "lstm, gru, rnn over n steps",
        "n",
        lambda n: (torch.nn.LSTM(4, 4), (torch.randn(n, 1, 4),)),
        n=64,
        reason="loops, in blocks of 128 steps",
    ),
    Family("scan, map over n steps", "n", _scan, n=64, reason="like lstm"),
    Family("while_loop of n steps", "n", _while_loop, n=64),
    Family(
        "matmul of n x n",
        "n^3",
        lambda n: (torch.matmul, (torch.randn(n, n), torch.randn(n, n))),
        n=16,
    ),
    Family(
        "cholesky, lu, qr, householder_product, solve, inv of n x n",
        "n^3",
        lambda n: (torch.linalg.inv, (torch.randn(n, n) + 9 * torch.eye(n),)),
        n=8,
        program="n",
        constants="n^2",
        reason="a loop over the columns, and a product in each step; LU, QR, Cholesky and "
        "triangular systems in blocks of 64, so that the steps cost n²",
    ),
    Family(
        "svd, eigh of n x n",
        "n^3",
        lambda n: (torch.linalg.eigvalsh, (torch.randn(n, n),)),
        n=8,
        program="log n",
        constants="n^2",
        reason="reduced to two diagonals in a loop of n steps, then log2 n levels of divide and "
        "conquer; the vectors of svd by QR, whose program grows with n",
    ),
    Family(
        "eig, eigvals of n x n",
        "n^3",
        lambda n: (torch.linalg.eigvals, (torch.randn(n, n),)),
        n=30,
        constants="n^2",
        reason="QR iteration: 2.5 n sweeps, each a pass over the matrix per 4 or 8 of n positions; "
        "below 64 rows, the time of the run time's single op, about 1 µs, of 30 ops per position",
    ),
    Family(
        "n writes to parts of a tensor of n rows",
        "n",
        _writes,
        n=64,
        program="n",
        constants="n",
        reason="one concatenation; written one by one, the tensor is copied n times",
    ),
    Family(
        "scaled_dot_product_attention of n positions",
        "n^2",
        lambda n: (
            functional.scaled_dot_product_attention,
            tuple(torch.randn(1, 1, n, 8) for _ in range(3)),
        ),
        n=32,
        reason="a score for each pair of positions",
    ),
    Family(
        "flex_attention of n positions",
        "n^2",
        _flex,
        n=32,
        constants="n^2",
        reason="a score for each pair of positions: blocks that the mask hides are not skipped, "
        "and masks and biases of fixed positions are stored",
    ),
    Family(
        "multilabel_margin_loss of n classes",
        "n^2",
        lambda n: (functional.multilabel_margin_loss, (torch.randn(1, n), torch.arange(n)[None])),
        n=64,
        reason="a table of labels and classes",
    ),
    Family(
        "_grouped_mm of n rows in n / 8 groups",
        "n^2",
        _grouped,
        n=64,
        reason="the products of all rows with all matrices, then a selection; at most as "
        "many rows as groups read one matrix each",
    ),
    Family(
        "matrix_exp, matrix_power of n x n",
        "n^3",
        lambda n: (torch.linalg.matrix_exp, (torch.randn(n, n) / n,)),
        n=16,
        constants="n^2",
        reason="products; matrix_exp squares its result in a loop",
    ),
    Family(
        "ldl_factor of n x n",
        "n^3",
        lambda n: (lambda x: torch.linalg.ldl_factor(x @ x.mT)[:2], (torch.randn(n, n),)),
        n=8,
        constants="n^2",
        reason="a loop over the columns, and each step passes over the whole matrix: 1.5 s for "
        "256 x 256",
    ),
    Family(
        "cdist, pdist of n points",
        "n^2",
        lambda n: (torch.pdist, (torch.randn(n, 4),)),
        n=32,
        constants="n^2",
        reason="a distance for each pair; pdist computes both of them and selects one",
    ),
    Family(
        "associative_scan of n elements",
        "n",
        _recurrence,
        n=64,
        program="log n",
        reason="torch's recursion halves the elements in each level",
    ),
    Family(
        "torchvision::roi_pool of n pixels",
        "n log^2 n",
        _rectangles,
        n=256,
        program="log^2 n",
        constants="n",
        reason="tables of the rectangles whose sides are powers of two; a dynamic size: a table "
        "of all bins and pixels",
    ),
)
