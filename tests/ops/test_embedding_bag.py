"""Sums and means of bags, which are computed from sums of blocks of rows."""

from __future__ import annotations

import pytest
import torch
from module_runner import check
from torch.nn import functional

_INF, _NAN = float("inf"), float("nan")


def _call(count, bags):
    """Return a table with infinite rows and NaN, indices, and the first place of each bag."""
    torch.manual_seed(count)
    weight = torch.randn(30, 2)
    weight[3], weight[4, 1], weight[5] = _INF, _NAN, -_INF
    starts = torch.randint(0, count + 1, (bags - 1,)).sort().values
    return weight, torch.randint(0, 30, (count,)), torch.cat([torch.zeros_like(starts[:1]), starts])


@pytest.mark.parametrize(("count", "bags"), [(26, 2), (27, 9), (28, 28), (200, 7)])
def test_bags_of_different_sizes(count, bags):
    def sums(weight, indices, starts):
        return (
            functional.embedding_bag(indices, weight, starts, mode="sum"),
            functional.embedding_bag(indices, weight, starts, mode="mean", padding_idx=3),
        )

    check(sums, _call(count, bags), optimized=(True,))


@pytest.mark.slow
def test_dynamic_bags():
    def mean(weight, indices, starts):
        return functional.embedding_bag(indices, weight, starts, mode="mean")

    dynamic = {0: torch.export.Dim.DYNAMIC}
    calls = [_call(*sizes) for sizes in ((11, 3), (2, 2), (100, 40))]
    check(mean, *calls, dynamic_shapes=(None, dynamic, dynamic), optimized=(True,))


def test_a_bag_is_independent_of_large_neighbours():
    weight = torch.tensor([[1e30], [-3e30], [1e-3], [2e-3]])
    indices = torch.tensor([0, 1, 2, 3, 0, 1] * 20)
    starts = torch.tensor([0, 2, 4, 8, 10, 12, 118])

    def total(weight, indices, starts):
        return functional.embedding_bag(indices, weight, starts, mode="sum")

    check(total, (weight, indices, starts), optimized=(True,))
