"""`unique` of integers with a narrow range, which are counted, and a wide one, which are sorted."""

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


def test_output_of_a_data_dependent_size_is_computed_once():
    # The run time computes the sizes of an output by a copy of the ops that they depend on, but
    # does not look into an if.
    program = convert(lambda x: x.sort()[0].nonzero(), (torch.randn(5),))
    (graph,) = mlir_module_of(program).body.operations
    (output,) = list(graph.regions[0].blocks[0].operations)[-1].operands
    assert output.owner.name == "coreai.if"
