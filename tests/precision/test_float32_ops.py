"""The report of a half-precision program counts every float32 op, those of lowerings too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import coreai_torch
from coreai_torch.asset.reading import read
from coreai_torch.asset.summary import ops_of
from coreai_torch.targets.lint import lint_program, rules_for

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.CalibrationWarning")


def convert(model, *args, **options):
    return coreai_torch.convert(model.eval(), args, precision="float16", **options)


class Exponential(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.norm(torch.exp(self.first(x))))


def test_islands_and_composites_are_counted_with_their_borders():
    program = convert(Exponential(), torch.randn(2, 8), keep=["aten.exp"], verify=False)
    found = program.precision_report.float32
    assert found.ops == {"exp": 1}
    assert found.borders == 2
    assert found.composites == {"layer_norm": 1}
    assert "1 float32 op (exp 1), 2 borders" in str(program.precision_report)


def test_casts_of_inputs_and_outputs_are_no_borders():
    program = convert(nn.Linear(8, 4), torch.randn(2, 8), verify=False)
    found = program.precision_report.float32
    assert (found.ops, found.borders, found.composites) == ({}, 0, {})


def test_float32_ops_that_a_lowering_adds_are_counted():
    class Bessel(nn.Module):
        def forward(self, x):
            return torch.special.i0(x)

    program = convert(Bessel(), torch.rand(4), verify=False)
    assert sum(program.precision_report.float32.ops.values()) > 0


@pytest.fixture(scope="module")
def mobile_net():
    sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
    from zoo import torchvision_library

    if not torchvision_library.FOLDER.exists():
        pytest.skip("torchvision is not installed")
    torch.manual_seed(0)
    model = torchvision_library.models("mobilenetv3").mobilenet_v3_large(weights=None).train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 64, 64))
    return model.eval()


def test_mobile_net_has_no_float32_op(mobile_net):
    program = convert(mobile_net, torch.randn(1, 3, 96, 96), target="neural_engine", verify=False)
    found = program.precision_report.float32
    assert (found.ops, found.borders, found.composites) == ({}, 0, {})
    codes = [finding.code for finding in lint_program(read(program), rules_for("neural_engine"))]
    assert "HAZ51" not in codes


def test_mobile_net_that_was_cast_by_half_has_no_cast(mobile_net):
    x = torch.randn(1, 3, 96, 96).half()
    program = coreai_torch.convert(mobile_net.half(), (x,), verify=False)
    ops = [op for f in read(program, largest=0).functions.values() for op in ops_of(f.body)]
    assert not [op for op in ops if op.name == "coreai.cast"]
    assert not [op for op in ops if any(t.element == "f32" for t in op.types)]


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


HALF_CALLS = {
    "mean": lambda x: x.mean((2, 3)),
    "long mean": lambda x: x.repeat(1, 1, 32, 64).mean((1, 2, 3)),
    "sum": lambda x: x.sum(1),
    "product": lambda x: x.prod(1),
    "std": lambda x: x.std(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "vector norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "average pool": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "adaptive average pool": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, size=(9, 13), mode="bicubic"),
    "transposed convolution": lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 2, 2).half()),
    "eps": lambda x: x / (x.abs() + 1e-6),
    "power": lambda x: x**3 + x.abs() ** 1.5,
    "floor division": lambda x: torch.floor_divide(x, 2),
    "mse": lambda x: F.mse_loss(x, x * 2),
    "smooth l1": lambda x: F.smooth_l1_loss(x, x * 2),
    "huber": lambda x: F.huber_loss(x, x * 2),
    "glu": lambda x: F.glu(x, 1),
    "log1p": lambda x: torch.log1p(x.abs()),
    **{
        function.__name__: function
        for function in (
            *(F.celu, F.elu, F.gelu, F.hardsigmoid, F.hardswish, F.logsigmoid, F.mish, F.selu),
            *(F.silu, F.softplus, torch.expm1, torch.frac, torch.erf),
        )
    },
}


@pytest.mark.parametrize("name", HALF_CALLS)
def test_half_precision_has_no_cast(name):
    x = torch.randn(1, 4, 8, 8).half()
    program = coreai_torch.convert(Call(HALF_CALLS[name]), (x,), verify="quick")
    assert program.verdict
    functions = read(program, largest=0).functions
    ops = [op for f in functions.values() if not f.composite for op in ops_of(f.body)]
    computed = [op for op in ops if op.name != "coreai.constant"]  # `interpolate` has float32 ones
    assert not [op for op in computed if any(t.element == "f32" for t in op.types)]
