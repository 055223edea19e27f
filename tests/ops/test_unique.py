"""`unique` of elements and of rows."""

from __future__ import annotations

import pytest
import torch
from module_runner import convert, run

from coreai_torch.asset.mlir_module import mlir_module_of


def _all(x):
    return torch.unique(x, return_inverse=True, return_counts=True)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 300), (-40, 5), (2**31 - 9, 2**31 - 1), (-(2**31), 2**31 - 1)]
)
def test_unique_of_many_integers(low, high):
    torch.manual_seed(0)
    x = torch.randint(low, high, (2, 700))
    x[0, :2] = torch.tensor([low, high])
    for found, wanted in zip(run(convert(_all, (x,)), (x,)), _all(x), strict=True):
        assert torch.equal(found.long(), wanted)


def test_unique_at_other_sizes_and_ranges():
    length = torch.export.Dim("length", min=2)
    program = convert(_all, (torch.arange(9),), dynamic_shapes=({0: length},))
    for x in (torch.tensor([5, 5, -7]), torch.tensor([10**9, 0, -(10**9), 0]), torch.zeros(2)):
        for found, wanted in zip(run(program, (x.long(),)), _all(x.long()), strict=True):
            assert torch.equal(found.long(), wanted)


def _rows(x):
    return torch.unique(x, dim=0, return_inverse=True, return_counts=True)


@pytest.mark.parametrize("width", [1, 3, 8, 9, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.bool])
def test_unique_rows_that_differ_in_any_column(width, dtype):
    torch.manual_seed(0)
    prefix = torch.randint(0, 2, (60, width)).cumprod(1)  # rows share prefixes of all lengths
    x = prefix.to(dtype)
    for found, wanted in zip(run(convert(_rows, (x,)), (x,)), _rows(x), strict=True):
        assert torch.equal(found.to(wanted.dtype), wanted)


@pytest.mark.parametrize("width", [3, 20])
def test_unique_rows_of_a_selection(width):
    def of_selected(x, mask):
        return _rows(x[mask])

    torch.manual_seed(0)
    x = torch.randint(-1, 2, (300, width))
    x[:, 2:] = 0
    places = torch.arange(300)
    program = convert(of_selected, (x, places < 9))
    for count in (0, 1, 2, 300):
        mask = places < count
        for found, wanted in zip(run(program, (x, mask)), of_selected(x, mask), strict=True):
            assert found.shape == wanted.shape
            assert torch.equal(found.long(), wanted)


@pytest.mark.parametrize("width", [2, 9])
def test_rows_with_nan_are_unique(width):
    # Torch's order of these rows depends on that of the input, so only the sets are compared.
    x = torch.zeros(7, width)
    x[:, 0] = torch.tensor([1.0, float("nan"), 1.0, 0.0, float("nan"), 0.0, 1.0])
    values, inverse, counts = run(convert(_rows, (x,)), (x,))
    assert torch.equal(values[inverse.long()].nan_to_num(9.0), x.nan_to_num(9.0))
    assert torch.equal(values[:, 0].nan_to_num(9.0), torch.tensor([0.0, 1.0, 9.0, 9.0]))
    assert counts.tolist() == [2, 3, 1, 1]


def test_program_size_does_not_depend_on_the_number_of_columns():
    def ops(width):
        (graph,) = mlir_module_of(convert(_rows, (torch.randn(5, width),))).body.operations
        return str(graph).count(" = coreai.")

    assert ops(10) == ops(40)


@pytest.mark.parametrize(
    "function",
    [torch.nonzero, lambda x: x[x > 0], torch.unique, lambda x: torch.unique(x[x > 0])],
)
def test_data_dependent_sizes_need_no_control_flow(function):
    assert "coreai.if" not in str(convert(function, (torch.randn(5),)))
