"""Constant indices and windows are slices, and adaptive averages are products."""

from __future__ import annotations

import pytest
import torch
from module_runner import convert, run
from torch.export import Dim
from torch.nn import functional

from coreai_torch.asset.mlir_module import mlir_module_of

_ROWS, _COLUMNS = torch.tril_indices(6, 6, -1)
_INDEXED = {
    "a permutation": lambda x: x[:, [0, 2, 1]],
    "the reverse": lambda x: x[:, [2, 1, 0]],
    "with repeats": lambda x: x[:, [0, 0, 0, 2, 2]],
    "negative": lambda x: x[:, [-1, -2]],
    "a regular list": lambda x: x[:, :, [0, 2, 4]],
    "each twice": lambda x: x.index_select(2, torch.arange(12) // 2),
    "a table of positions": lambda x: x[:, :, torch.tensor([[0, 5], [3, 1]])],
    "rows and columns": lambda x: x[:, :, torch.arange(6)[:, None], torch.tensor([0, 3, 1])],
    "below the diagonal": lambda x: x[:, :, _ROWS, _COLUMNS],
    "axes that are not adjacent": lambda x: x[:, [0, 2], :, [1, 3]],
    "a mask": lambda x: x[:, torch.tensor([True, False, True])],
}


@pytest.mark.parametrize("name", _INDEXED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_constant_indices_are_slices(name, dtype):
    x = (torch.randn(2, 3, 6, 6) * 2).to(dtype)
    if dtype.is_floating_point:
        x[0, 0, 0, 0], x[1, 1, 1, 1] = float("nan"), float("-inf")
    program = convert(_INDEXED[name], (x,))
    (found,) = run(program, (x,))
    want = _INDEXED[name](x)
    torch.testing.assert_close(found, want, rtol=0, atol=0, equal_nan=True)
    assert "gather" not in str(mlir_module_of(program))


def test_a_constant_index_beside_a_dynamic_batch_is_a_slice():
    def swaps(x):
        return x[:, [0, 2, 1]]

    program = convert(swaps, (torch.randn(2, 3, 5),), ({0: Dim.AUTO},))
    x = torch.randn(7, 3, 5)
    assert torch.equal(run(program, (x,))[0], swaps(x))
    assert "gather" not in str(mlir_module_of(program))


def test_many_scattered_positions_are_gathered():
    places = torch.randperm(500, generator=torch.Generator().manual_seed(0))

    def shuffled(x):
        return x[places]

    x = torch.randn(500, 3)
    program = convert(shuffled, (x,))
    assert torch.equal(run(program, (x,))[0], shuffled(x))
    assert "gather" in str(mlir_module_of(program))


@pytest.mark.parametrize("out", [(3, 5), (7, 7), (10, 1)])
def test_uneven_adaptive_averages_are_products(out):
    x = torch.randn(2, 3, 8, 11)

    def pools(x):
        return functional.adaptive_avg_pool2d(x, out)

    program = convert(pools, (x,))
    torch.testing.assert_close(run(program, (x,))[0], pools(x), rtol=1e-5, atol=1e-6)
    assert "gather" not in str(mlir_module_of(program))


@pytest.mark.parametrize("padding", [0, 1])
def test_places_of_maxima_do_not_gather(padding):
    x = torch.randn(2, 3, 12, 13)

    def pools(x):
        return functional.max_pool2d(x, 3, 2, padding, return_indices=True)

    program = convert(pools, (x,))
    for found, want in zip(run(program, (x,)), pools(x), strict=True):
        assert torch.equal(found, want.to(found.dtype))
    assert "gather" not in str(mlir_module_of(program))
