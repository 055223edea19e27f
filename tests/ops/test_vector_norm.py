"""A vector norm becomes the composite that the compiler knows."""

from __future__ import annotations

import pytest
import runtime
import torch
import torch.nn.functional as F

import coreai_torch


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def converted(function, x):
    exported = torch.export.export(Call(function), (x,))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    return coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.parametrize(
    ("function", "attributes"),
    [
        (lambda x: x.norm(dim=-1), "axes = [1 : si64], keep_dim = false, ord = 2.000000e+00"),
        (lambda x: x.norm(1, (0, 1), True), "[0 : si64, 1 : si64], keep_dim = true, ord = 1.0"),
        (lambda x: torch.linalg.vector_norm(x, 3), "keep_dim = false, ord = 3.000000e+00"),
        (lambda x: torch.norm(x, "fro"), "keep_dim = false, ord = 2.000000e+00"),
    ],
)
def test_norm_is_one_composite(function, attributes):
    text = str(converted(function, torch.ones(2, 3)))
    assert text.count('composite_declaration<"linalg_vector_norm"') == 1
    assert 'input_names = ["input"]' in text
    assert attributes in text


def test_normalize_keeps_eps_for_zero_vectors():
    x = torch.tensor([[0.0, 0.0, 0.0], [1e-20, 0.0, 0.0], [3.0, 4.0, 0.0]])
    (got,) = runtime.run(converted(F.normalize, x), {"x": x}).values()
    torch.testing.assert_close(got, F.normalize(x))
    assert got[0].tolist() == [0.0, 0.0, 0.0]
