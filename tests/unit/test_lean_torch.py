"""The patches of tests/lean_torch.py change no decomposition."""

from __future__ import annotations

import lean_torch
import pytest
import torch

import coreai_torch


class ManyComposites(torch.nn.Module):
    """Ops that torch decomposes itself, unless a table says otherwise."""

    def __init__(self):
        super().__init__()
        self.linear, self.conv = torch.nn.Linear(8, 8), torch.nn.Conv2d(2, 4, 3)
        self.norm, self.batch_norm = torch.nn.LayerNorm(8), torch.nn.BatchNorm2d(4)

    def forward(self, x, image):
        attended = torch.nn.functional.scaled_dot_product_attention(x, x, self.norm(x))
        image_features = torch.nn.functional.silu(self.batch_norm(self.conv(image)))
        large = torch.nn.functional.interpolate(image_features, scale_factor=2.0, mode="bilinear")
        spread = torch.einsum("bij,bkj->bik", self.linear(attended), x).softmax(-1)
        return spread, torch.nn.functional.max_pool2d(large, 2), x.unflatten(-1, (2, 4)).std(-1)


@pytest.mark.parametrize(
    "table", [torch.export.default_decompositions, coreai_torch.get_decomp_table, dict]
)
def test_decomposed_programs_equal_those_of_unpatched_torch(table):
    inputs = torch.ones(2, 3, 8), torch.ones(1, 2, 8, 8)
    lean = _decomposed(inputs, table)
    with lean_torch.unpatched():
        assert _decomposed(inputs, table) == lean


def test_composite_ops_equal_those_of_unpatched_torch():
    lean = lean_torch.walks._collect_all_valid_cia_ops()
    with lean_torch.unpatched():
        assert lean_torch.walks._collect_all_valid_cia_ops() == lean


def _decomposed(inputs, table):
    exported = torch.export.export(ManyComposites().eval(), inputs).run_decompositions(table())
    return exported.graph_module.code, str(exported.graph_signature)


def test_environment_variable_disables_the_patches(monkeypatch):
    monkeypatch.setenv("PLAIN_TORCH", "1")
    with lean_torch.unpatched():
        before = lean_torch.walks._collect_all_valid_cia_ops
        lean_torch.make_lean()
        assert lean_torch.walks._collect_all_valid_cia_ops is before
