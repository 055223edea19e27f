"""Constants are stored once, in the layout that is used, under their names."""

from __future__ import annotations

import runtime
import torch
from staging import converted
from torch import nn
from torch.nn import functional


class BothWays(nn.Module):
    """Use a weight unchanged, and as the kernel of a convolution."""

    def __init__(self, width):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        kernel = self.weight.reshape(*self.weight.shape, 1, 1)
        return functional.conv2d(x[:, :, None, None], kernel).flatten(1) + x @ self.weight


def test_large_weight_used_in_two_shapes_is_stored_once(tmp_path):
    module, x = BothWays(1024).eval(), torch.randn(2, 1024)
    program = converted(module, x)
    text = str(program)
    assert "dense_resource<weight> : tensor<1024x1024xf32>" in text
    assert "dense_resource<weight.as_used> : tensor<1024x1024x1x1xf32>" in text
    program.save_asset(tmp_path / "both.aimodel")
    stored = (tmp_path / "both.aimodel" / "main.mlirb").stat().st_size
    assert stored < 1.1 * module.weight.nbytes
    torch.testing.assert_close(*runtime.run(program, {"x": x}).values(), module(x))


def test_small_transposed_weight_keeps_its_name():
    module, x = nn.Linear(32, 48).eval(), torch.randn(2, 32)
    program = converted(module, x)
    text = str(program)
    assert "coreai.transpose" not in text
    assert "dense_resource<weight> : tensor<32x48xf32>" in text
    torch.testing.assert_close(*runtime.run(program, {"input": x}).values(), module(x))
