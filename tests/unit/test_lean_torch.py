"""The tests' torch decomposes as torch does."""

from __future__ import annotations

import lean_torch
import pytest
import torch

import coreai_torch


class ManyComposites(torch.nn.Module):
    """Ops that torch takes apart itself, unless a table says otherwise."""

    def __init__(self):
        super().__init__()
        self.linear, self.conv = torch.nn.Linear(8, 8), torch.nn.Conv2d(2, 4, 3)
        self.norm, self.batch_norm = torch.nn.LayerNorm(8), torch.nn.BatchNorm2d(4)

    def forward(self, x, image):
        attended = torch.nn.functional.scaled_dot_product_attention(x, x, self.norm(x))
        picture = torch.nn.functional.silu(self.batch_norm(self.conv(image)))
        large = torch.nn.functional.interpolate(picture, scale_factor=2.0, mode="bilinear")
        spread = torch.einsum("bij,bkj->bik", self.linear(attended), x).softmax(-1)
        return spread, torch.nn.functional.max_pool2d(large, 2), x.unflatten(-1, (2, 4)).std(-1)


@pytest.mark.parametrize(
    "table", [torch.export.default_decompositions, coreai_torch.get_decomp_table, dict]
)
def test_programs_are_those_of_torch_as_it_stands(table):
    inputs = torch.ones(2, 3, 8), torch.ones(1, 2, 8, 8)
    lean = _decomposed(inputs, table)
    with lean_torch.as_torch_is():
        assert _decomposed(inputs, table) == lean


def test_the_walk_finds_the_ops_that_torch_finds():
    lean = lean_torch.walks._collect_all_valid_cia_ops()
    with lean_torch.as_torch_is():
        assert lean_torch.walks._collect_all_valid_cia_ops() == lean


def _decomposed(inputs, table):
    exported = torch.export.export(ManyComposites().eval(), inputs).run_decompositions(table())
    return exported.graph_module.code, str(exported.graph_signature)
