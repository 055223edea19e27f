"""Sums at positions: one scatter each, and half precision in float32 inside a composite."""

from __future__ import annotations

import pytest
import torch
from module_runner import check

D = torch.export.Dim.DYNAMIC
PLACES = torch.tensor([0, 1, 1])


def test_single_positions_and_pairs():
    def put(x, i, j, v):
        return x.index_put((i, j), v, True), x.index_put((i,), v, True), x.index_put((i, j), v)

    check(put, (torch.randn(3, 4, 2), torch.tensor(2), torch.tensor(1), torch.randn(2)))


def test_pairs_of_constant_positions():
    places = torch.tensor([0, 2, 0]), torch.tensor([1, -1, 1])
    check(lambda x, v: x.index_put(places, v, True), (torch.randn(3, 4, 2), torch.randn(2)))


def test_pairs_at_other_sizes():
    def put(x, i, j, v):
        behind = torch.ops.aten.index_put(x, [None, i, j], v[:1], True)
        return x.index_put((i, j), v, True), behind

    calls = []
    for rows, count in ((3, 3), (5, 4)):
        places = torch.arange(count) % 2
        calls.append((torch.randn(rows, 4, 2), places, 1 - places, torch.randn(2)))
    check(put, *calls, dynamic_shapes=({0: D}, {0: D}, {0: D}, None))


def test_each_factor_has_its_own_composite():
    def added(x, v):
        rows = PLACES[:, None].expand(-1, 3)
        return (
            x.index_add(0, PLACES, v),
            x.index_add(0, PLACES, v, alpha=2),
            x.scatter_add(0, rows, v),
        )

    x, v = torch.randn(4, 3).half(), torch.randn(3, 3).half()
    text = str(check(added, (x, v)))
    assert all(name in text for name in ('"index_add"', '"scatter_add"'))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_rows_are_added_without_a_wrap_of_positions(dtype):
    x, v = torch.zeros(4, 3, dtype=dtype), torch.ones(3, 3, dtype=dtype)
    program = check(lambda x, i, v: x.index_add(0, i, v), (x, PLACES, v))
    assert "coreai.where" not in str(program)
