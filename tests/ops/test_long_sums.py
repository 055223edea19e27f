"""Cumulative sums along a dynamic axis, in stages or blocks if it is long."""

from __future__ import annotations

import pytest
import torch
from module_runner import check

_LENGTH = {0: torch.export.Dim.DYNAMIC}


def test_length_decides_how_a_sum_runs():
    """8,192 runs at once, 20,000 in runs of 1,000, and 20,011 is a prime."""
    check(
        lambda x: x.cumsum(0),
        *((torch.rand(n),) for n in (8_192, 20_000, 20_011, 9_999, 5)),
        dynamic_shapes=(_LENGTH,),
        optimized=(True,),
    )


def test_a_million_numbers_do_not_drift():
    """Added one by one, these have an error of 1e-5 of the sum."""
    calls = [(torch.rand(n),) for n in (1_000_000, 1_000_003)]
    check(
        lambda x: x.cumsum(0),
        *calls,
        dynamic_shapes=(_LENGTH,),
        tolerance=(2e-6, 0.0),
        optimized=(True,),
    )


def test_many_short_runs_are_summed_in_stages():
    """The largest divisor of 1,000,336 up to 1,024 is 16, which leaves 62,521 totals."""
    assert 1_000_336 == 16 * 62_521
    check(
        lambda x: x.cumsum(0),
        (torch.rand(1_000_336),),
        dynamic_shapes=(_LENGTH,),
        tolerance=(2e-6, 0.0),
        optimized=(True,),
    )


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_any_axis_may_be_long_and_dynamic(dim):
    sizes = [[2, 3, 2] for _ in range(2)]
    sizes[0][dim], sizes[1][dim] = 9_000, 9_001
    check(
        lambda x: x.cumsum(dim),
        *((torch.randn(n).abs(),) for n in sizes),
        dynamic_shapes=({dim: torch.export.Dim.DYNAMIC},),
        optimized=(True,),
    )


def test_infinities_and_nan_affect_only_later_elements():
    x = torch.rand(9_000)
    x[4_000], x[8_500] = float("inf"), float("nan")
    check(lambda x: x.cumsum(0), (x,), dynamic_shapes=(_LENGTH,), optimized=(True,))


def test_equal_sums_are_independent():
    def twice(x):
        return x.cumsum(0) + x, x.cumsum(0) * x

    calls = [(torch.rand(n),) for n in (5, 9_000)]
    check(twice, *calls, dynamic_shapes=(_LENGTH,), optimized=(True,))


@pytest.mark.parametrize("dim", [0, 1])
def test_blocks_of_blocks_of_exponentials_are_summed(dim):
    """4,096 elements are one block of 16 blocks of 16 blocks; 20,011 are five of them."""
    sizes = [[3, 3] for _ in range(5)]
    for size, length in zip(sizes, (20_011, 4_097, 4_096, 257, 1), strict=True):
        size[dim] = length
    inputs = [torch.randn(size) * 30 for size in sizes]
    for x in inputs[:2]:
        x.select(dim, 0).fill_(-float("inf"))
        x.select(dim, 4_000)[0], x.select(dim, 4_090)[1] = float("inf"), float("nan")
    check(
        lambda x: x.logcumsumexp(dim),
        *((x,) for x in inputs),
        dynamic_shapes=({dim: torch.export.Dim.DYNAMIC},),
        optimized=(True,),
    )
