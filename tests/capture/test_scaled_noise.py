"""Noise that a model multiplies by 0 does not make its program random."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn

from coreai_torch import convert
from coreai_torch.errors import UnsupportedOpError

X = torch.linspace(-2, 2, 12).reshape(4, 3)


class Noisy(nn.Module):
    def __init__(self, draw, scale):
        super().__init__()
        self.draw, self.scale = draw, scale

    def forward(self, x):
        return x + self.draw(x) * torch.exp(x) * self.scale


def _shape(x):
    return torch.randn(x.shape[0], 3)


def _cast(x):
    return torch.randn(x.shape[0], 3).to(device=x.device, dtype=x.dtype)


@pytest.mark.parametrize("draw", [torch.randn_like, torch.rand_like, _shape, _cast])
@pytest.mark.parametrize("shapes", [None, {"x": {0: torch.export.Dim.DYNAMIC}}])
def test_noise_with_a_scale_of_zero_is_dropped(draw, shapes):
    model = Noisy(draw, 0.0)
    program = convert(model, (X,), dynamic_shapes=shapes, verify=False)
    (found,) = runtime.run(program, {"x": X}).values()
    torch.testing.assert_close(found, X)


@pytest.mark.parametrize("scale", [0.5, torch.zeros(3)])
def test_noise_with_another_scale_is_rejected(scale):
    with pytest.raises(UnsupportedOpError, match='pass random="input" to convert'):
        convert(Noisy(torch.randn_like, scale), (X,), verify=False)


def test_noise_with_another_use_is_rejected():
    class Both(nn.Module):
        def forward(self, x):
            noise = torch.randn_like(x)
            return x + noise * 0.0, noise

    with pytest.raises(UnsupportedOpError, match="randn_like"):
        convert(Both(), (X,), verify=False)
