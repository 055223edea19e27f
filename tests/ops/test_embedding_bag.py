"""Sums and means of bags, which are computed from sums of blocks of rows."""

from __future__ import annotations

import pytest
import torch
from module_runner import check
from torch.nn import functional

import coreai_torch
from coreai_torch.asset.mlir_module import mlir_module_of

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


_WIDE = 70  # rows that are gathered whole


@pytest.mark.parametrize("width", [2, _WIDE])
@pytest.mark.parametrize("dynamic", [None, (0,), (0, 1)])
def test_matrix_of_indices(width, dynamic):
    def bags(weight, indices, factors):
        return (
            functional.embedding_bag(indices, weight, mode="sum", per_sample_weights=factors),
            functional.embedding_bag(indices, weight, mode="mean"),
            functional.embedding_bag(indices, weight, mode="mean", padding_idx=3),
            functional.embedding_bag(indices, weight, mode="max", padding_idx=3),
        )

    weight = torch.randn(30, width)
    weight[3], weight[4, 1], weight[5] = _INF, _NAN, -_INF
    sizes = {None: [(6, 5)], (0,): [(6, 5), (2, 5)], (0, 1): [(6, 5), (2, 3)]}[dynamic]
    calls = [(weight, torch.randint(0, 30, n), torch.rand(n)) for n in sizes]
    calls[-1][1][:2] = 3
    axes = dict.fromkeys(dynamic or (), torch.export.Dim.DYNAMIC)
    shapes = (None, axes, axes) if dynamic else None
    check(bags, *calls, dynamic_shapes=shapes, optimized=(True,))


@pytest.mark.parametrize(("count", "step"), [(20, 5), (21, 5), (20, 6), (20, 1)])
def test_offsets_in_equal_steps(count, step):
    def bags(weight, indices):
        starts = torch.arange(0, 20, step)
        return functional.embedding_bag(indices, weight, starts, mode="sum")

    check(bags, (torch.randn(30, 4), torch.randint(0, 30, (count,))), optimized=(True,))


def test_equal_bags_are_not_scattered():
    class Bags(torch.nn.Module):
        def forward(self, weight, indices):
            return functional.embedding_bag(indices, weight, mode="mean")

    program = coreai_torch.convert(
        Bags(), (torch.randn(30, 4), torch.randint(0, 30, (6, 5))), verify=False
    )
    text = str(mlir_module_of(getattr(program, "program", program)))
    assert "gather" in text
    assert "scatter" not in text


@pytest.mark.parametrize("offsets", [(0, 4), (0, 4, 6), (0, 4, 4), (0, 0), (0, 8), (0, 3, 8)])
def test_last_offset_below_the_number_of_indices(offsets):
    """Torch's float32 sum without padding ends at the last offset; its other kernels do not."""

    def bags(weight, indices, offsets, factors):
        def reduced(mode, weight=weight, **more):
            return functional.embedding_bag(
                indices, weight, offsets, mode=mode, include_last_offset=True, **more
            )

        return (
            *(reduced(mode) for mode in ("sum", "mean", "max")),
            *(reduced(mode, padding_idx=3) for mode in ("sum", "mean", "max")),
            reduced("sum", per_sample_weights=factors),
            reduced("sum", per_sample_weights=factors, padding_idx=3),
        )

    indices = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8])
    check(bags, (torch.randn(10, 3), indices, torch.tensor(offsets), torch.rand(8)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_last_offset_below_the_number_of_indices_in_half_precision(dtype):
    def bags(weight, indices, offsets):
        return functional.embedding_bag(
            indices, weight, offsets, mode="sum", include_last_offset=True
        )

    check(bags, (torch.randn(10, 3, dtype=dtype), torch.arange(1, 9), torch.tensor([0, 4])))


def test_last_offset_below_a_dynamic_number_of_indices():
    def bags(weight, indices, offsets):
        return functional.embedding_bag(
            indices, weight, offsets, mode="sum", include_last_offset=True
        )

    dynamic = {0: torch.export.Dim.DYNAMIC}
    weight = torch.randn(30, 3)
    calls = [
        (weight, torch.arange(count) % 30, torch.tensor(offsets))
        for count, offsets in ((8, (0, 2, 4)), (50, (0, 7, 7, 20, 41)), (3, (0, 1, 3)))
    ]
    check(bags, *calls, dynamic_shapes=(None, dynamic, dynamic), optimized=(True,))


def test_last_offset_of_a_transposed_table():
    def bags(weight, indices, offsets):
        return functional.embedding_bag(
            indices, weight.t(), offsets, mode="sum", include_last_offset=True
        )

    check(bags, (torch.randn(3, 10), torch.arange(1, 9), torch.tensor([0, 4])))
