"""Kernels inside branches and loops."""

import pytest
import torch
from kernels.test_kernel_conversion import RELU, converted, decomposed, line, sources
from torch import nn

from coreai_torch import TorchConverter
from coreai_torch.kernels import emulated


class Branches(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: RELU(y, **line(y)), lambda y: y - 1, (x,))


class Loops(nn.Module):
    def forward(self, x):
        def body(i, y):
            return i + 1, RELU(y, **line(y))

        return torch.while_loop(lambda i, y: i < 3, body, (torch.tensor(0), x))[1]


@pytest.mark.parametrize("model", [Branches(), Loops()])
def test_kernel_inside_control_flow_converts(model):
    x = torch.linspace(-1, 2, 8)
    exported = decomposed(model, x)
    assert torch.equal(exported.module()(x), x.relu())
    program = converted(exported, RELU)
    assert len(sources(program)) == 1


def test_unregistered_kernel_inside_control_flow_raises():
    with pytest.raises(ValueError, match="converted_relu"):
        TorchConverter().add_exported_program(decomposed(Branches(), torch.ones(8))).to_coreai()


@pytest.mark.parametrize("model", [Branches(), Loops()])
def test_control_flow_runs_the_source(model):
    x = torch.linspace(-1, 2, 8)
    with emulated(verify=True):
        assert torch.equal(decomposed(model, x).module()(x), x.relu())
