"""`verify(..., device=...)`: torch runs the model and the program on a device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter
from coreai_torch.errors import VerificationInputError
from coreai_torch.ir import dialect
from coreai_torch.verification import TrialPlan

sys.path.insert(0, str(Path(__file__).parents[1] / "interpreter"))
from remote_device import DEVICE, pretended

FEW = TrialPlan(seeds=1, sizes=0, edges=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return torch.relu(self.linear(x)) * torch.arange(4) + self.calls


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


X = torch.linspace(-2, 2, 8).reshape(2, 4)


def test_model_and_program_run_on_the_device(net):
    with pretended():
        verdict = coreai_torch.verify(net, None, (X,), device=DEVICE, trials=FEW)
    assert verdict.ok, str(verdict)
    assert f"torch ran the program on {DEVICE}; the runtime of this machine did not run" in str(
        verdict
    )
    assert "the model ran on the CPU" not in str(verdict)
    assert net.calls.item() == 0
    assert net.linear.weight.device.type == "cpu"


def test_an_exported_program_runs_on_the_device(net):
    program = torch.export.export(net, (X,))
    with pretended():
        verdict = coreai_torch.verify(program, None, (X,), device=DEVICE, trials=FEW)
    assert verdict.ok, str(verdict)
    assert "the model ran on the CPU" not in str(verdict)


def test_a_wrong_op_is_found_on_the_device(net):
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::relu", allow_override=True)
    def wrong(ctx, x):
        return dialect.maximum(x, dialect.like(x, -0.125))

    with pretended():
        verdict = coreai_torch.verify(
            net, None, (X,), device=DEVICE, trials=FEW, converter=converter
        )
    assert not verdict
    assert verdict.divergence.op == "aten.relu.default"


class Stuck(nn.Module):
    """A model with a CPU tensor that does not follow the model to a device."""

    def __init__(self):
        super().__init__()
        self.offset = torch.ones(4)

    def forward(self, x):
        return torch.sin(x) + self.offset


def test_a_model_that_cannot_run_there_runs_on_the_cpu():
    with pretended():
        verdict = coreai_torch.verify(Stuck(), None, (X,), device=DEVICE, trials=FEW)
    assert verdict.ok
    assert f"the model ran on the CPU, because on {DEVICE} it raised" in str(verdict)


def test_an_unavailable_device_is_rejected(net):
    with pytest.raises(VerificationInputError, match="torch cannot use the device 'nowhere'"):
        coreai_torch.verify(net, None, (X,), device="nowhere")
    if not torch.cuda.is_available():
        with pytest.raises(VerificationInputError, match="torch cannot use the device 'cuda'"):
            coreai_torch.verify(net, None, (X,), device="cuda")


def test_the_runtime_has_no_other_device(net):
    with (
        pretended(),
        pytest.raises(VerificationInputError, match=f"the runtime cannot run on '{DEVICE}'"),
    ):
        coreai_torch.verify(net, None, (X,), device=DEVICE, engine="runtime")
