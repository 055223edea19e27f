"""Run programs on a GPU with `to_torch(program).to("cuda")`, and verify there."""

from __future__ import annotations

import case_runner
import pytest
import torch
from decoder import Decoder
from test_decoder import COMPOSITES, expected, staged
from test_devices import Counter, Loop, converted
from test_interpreted_decoder import generated
from torch import nn

import coreai_torch
from coreai_torch import to_torch
from coreai_torch.interpreter.devices import full_precision
from coreai_torch.verification import TrialPlan

if not torch.cuda.is_available():
    pytest.skip("torch has no CUDA device here", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")

EVERY = 7
FEW = TrialPlan(seeds=1, sizes=1, edges=True)


def run_on_gpu(program, feeds):
    outputs = to_torch(program).to("cuda").function("main")(feeds)
    assert all(value.is_cuda for value in outputs.values())
    return {name: value.cpu() for name, value in outputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "case"), case_runner.ALL)
def test_case(entry, case):
    case_runner.check(entry, case, dynamic=False, run=run_on_gpu)


@pytest.mark.parametrize(("entry", "case"), case_runner.ALL[::EVERY])
def test_some_cases(entry, case):
    case_runner.check(entry, case, dynamic=False, run=run_on_gpu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_decoder_generates_the_tokens_of_the_cpu(dtype):
    torch.manual_seed(1)
    model = Decoder().eval().to(dtype)
    program, _ = staged(model, COMPOSITES)
    module = to_torch(program)
    here = generated(module)
    with torch.no_grad():
        assert dtype != torch.float32 or here == expected(model)
    module.reset()
    module.to("cuda")
    assert generated(module) == here
    assert all(value.is_cuda for value in module.states.values())


def test_control_flow():
    x = torch.linspace(-1, 2, 6).reshape(2, 3)
    (got,) = run_on_gpu(converted(Loop(), x), {"x": x}).values()
    torch.testing.assert_close(got, Loop()(x), rtol=1e-6, atol=1e-6)


def test_states_stay_on_the_gpu():
    module = to_torch(converted(Counter(), torch.ones(3))).to("cuda")
    assert module(torch.ones(3))["mul"].tolist() == [2, 2, 2]
    assert module(torch.ones(3).cuda())["mul"].tolist() == [4, 4, 4]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3, padding=1)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).mean((-2, -1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_verify_on_the_gpu(dtype):
    torch.manual_seed(0)
    model, x = Net().eval().to(dtype), torch.randn(2, 3, 32, 32, dtype=dtype)
    verdict = coreai_torch.verify(model, None, (x,), device="cuda", trials=FEW)
    assert verdict.ok, str(verdict)
    assert "torch ran the program on cuda" in str(verdict)
    assert "the model ran on the CPU" not in str(verdict)
    assert not next(model.parameters()).is_cuda


def test_float32_convolutions_do_not_use_tf32():
    torch.manual_seed(0)
    conv = nn.Conv2d(64, 64, 3).cuda()
    x = torch.randn(1, 64, 32, 32, device="cuda")
    exact = torch.nn.functional.conv2d(x.double(), conv.weight.double(), conv.bias.double())
    before = torch.backends.cudnn.conv.fp32_precision
    with full_precision(x.device), torch.no_grad():
        error = (conv(x) - exact).abs().max() / exact.abs().max()
    assert error < 1e-6
    assert torch.backends.cudnn.conv.fp32_precision == before
