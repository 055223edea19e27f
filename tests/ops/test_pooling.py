"""Pools over a grid of windows, at sizes other than the exported ones."""

from __future__ import annotations

import itertools

import pytest
import runtime
import torch
from case_runner import compare
from module_runner import check

import coreai_torch

F = torch.nn.functional
_EXPORTED, _OTHER = (7, 8), (9, 6)


def _windows():
    """Yield all small kernels, strides, paddings, dilations and ceil modes that torch accepts."""
    for k, s, d, ceil in itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (False, True)):
        for p in range(k // 2 + 1):
            yield k, s, p, d, ceil


class _Greatest(torch.nn.Module):
    def forward(self, x):
        return [
            result
            for k, s, p, d, ceil in _windows()
            for result in F.max_pool2d(x, k, (s, 2), p, d, ceil, return_indices=True)
        ]


class _Average(torch.nn.Module):
    def forward(self, x):
        return [
            F.avg_pool2d(x, k, (s, 2), p, ceil, count_include_pad, divisor)
            for k, s, p, d, ceil in _windows()
            if d == 1
            for count_include_pad, divisor in ((True, None), (False, None), (True, 5))
        ]


class _Adaptive(torch.nn.Module):
    def forward(self, x):
        sizes = [*itertools.product((1, 2, 3, 5, 9), (1, 4, 7))]
        averages = [F.adaptive_avg_pool2d(x, size) for size in sizes]
        greatest = [F.adaptive_max_pool2d(x, size, return_indices=True) for size in sizes]
        return [*averages, *itertools.chain(*greatest)]


@pytest.mark.parametrize("sizes", ["static", "dynamic"])
@pytest.mark.parametrize("model", [_Greatest(), _Average(), _Adaptive()], ids=lambda m: str(m)[:-2])
def test_pool_grid(model, sizes):
    auto = torch.export.Dim.AUTO
    x = torch.randint(-3, 4, (2, 2, *_EXPORTED)).float()  # small integers: many equal values
    dynamic = dict.fromkeys((0, 2, 3), auto) if sizes == "dynamic" else {}
    exported = torch.export.export(model, (x,), dynamic_shapes=(dynamic,))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    feeds = [x] if sizes == "static" else [x, torch.randn(3, 2, *_OTHER)]
    for feed in feeds:
        got = runtime.run(program, {"x": feed})
        for found, want in zip(got.values(), model(feed), strict=True):
            compare(found, want)


def test_an_uneven_average_of_a_long_axis_stores_no_large_matrix():
    """A matrix for 8,192 to 2,730 elements takes 90 MB."""
    x = torch.randn(1, 2, 8192)
    program = check(lambda x: F.adaptive_avg_pool1d(x, 2730), (x,), optimized=(True,))
    assert "2730x8192" not in str(program)
    assert "8192x2730" not in str(program)
