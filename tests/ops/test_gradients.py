"""Models that compute gradients at inference: energies whose derivative is the result.

`torch.export` (2.13) rejects `torch.autograd.grad` of most layers; `make_fx` traces it.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from coreai_torch import convert
from coreai_torch.errors import ConversionError


class Force(nn.Module):
    """The derivative of the energy of an image."""

    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 3, 3, stride=2, padding=1)
        self.layer = layer

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = self.layer(torch.tanh(self.conv(x))).square().sum()
            return torch.autograd.grad(energy, x)[0]


LAYERS = {
    "convolution": nn.Conv2d(3, 2, 2),
    "transposed convolution": nn.ConvTranspose2d(3, 2, 2, 2),
    "average pool": nn.AvgPool2d(2),
    "adaptive pool": nn.AdaptiveAvgPool2d(2),
    "maximum pool": nn.MaxPool2d(2),
    "resize": nn.Upsample(scale_factor=2),
    "activations": nn.Sequential(nn.GELU(), nn.Softplus()),
    "layer norm": nn.LayerNorm(4),
    "group norm": nn.GroupNorm(1, 3),
}


X = torch.linspace(-2, 2, 128).reshape(1, 2, 8, 8)


def traced(layer):
    return make_fx(Force(layer))(X)


@pytest.mark.parametrize("name", LAYERS)
def test_forces_equal_those_of_torch(name):
    program = convert(traced(LAYERS[name]), (X,))
    assert program.verdict.ok


def test_the_gradient_of_a_resize_by_another_factor_is_rejected():
    class Resized(nn.Module):
        def forward(self, x):
            return functional.interpolate(x, size=7)

    with pytest.raises(ConversionError, match="gradient of a resize by this factor"):
        convert(traced(Resized()), (X,))
