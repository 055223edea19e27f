"""Wrong programs that a tolerance by dtype accepts are rejected, and correct ones pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter
from coreai_torch.ir import dialect as cai
from coreai_torch.ir.casting import cast
from coreai_torch.verification import TrialPlan, verify

GIVEN = TrialPlan(seeds=0, sizes=0, edges=False, steps=1)
X = torch.linspace(-2, 2, 24).reshape(3, 8)


def sabotaged(op, change):
    """Return a converter whose lowering of `op` applies `change` to its first operand."""
    converter = TorchConverter()

    @converter.register_torch_lowering(f"aten::{op}", allow_override=True)
    def lowering(ctx, x):
        return change(x)

    return converter


def zeros(x):
    return cai.sub(x, x)


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def verdict_of(function, *args, converter=None, trials=GIVEN):
    return verify(Model(function), None, args, converter=converter, trials=trials)


def eight_tanh_and_float8(x):
    for _ in range(8):
        x = torch.tanh(x)
    return x, x.to(torch.float8_e4m3fn)


def test_a_float8_output_does_not_widen_the_limit_of_other_outputs():
    assert verdict_of(eight_tanh_and_float8, X)
    assert not verdict_of(eight_tanh_and_float8, X, converter=sabotaged("tanh", zeros))


def large_beside_small(x, y):
    return torch.cat([x * 1e6, torch.sin(y) * 1e-2])


def test_large_elements_do_not_widen_the_limit_of_small_ones():
    assert verdict_of(large_beside_small, X, X)
    wrong = verdict_of(large_beside_small, X, X, converter=sabotaged("sin", zeros))
    assert not wrong
    assert wrong.divergence.op == "aten.sin.default"


def small_branch(x):
    return x + torch.sigmoid(x) * 1e-3


def test_a_constant_shift_of_a_small_branch_is_found():
    def shifted(x):
        return cai.add(cai.sigmoid(x), cai.like(x, 0.01))

    assert verdict_of(small_branch, X)
    assert not verdict_of(small_branch, X, converter=sabotaged("sigmoid", shifted))


@pytest.mark.parametrize("depth", [1, 12])
def test_a_relative_error_and_float16_inside_float32_are_found(depth):
    def net(x):
        for _ in range(depth):
            x = torch.tanh(x @ x.mT @ x) + x
        return torch.softmax(x, -1)

    def off(x):
        return cai.mul(cai.tanh(x), cai.like(x, 1.001))

    def halved(x):
        return cast(cast(cai.tanh(x), torch.float16), torch.float32)

    x = X / 4
    assert verdict_of(net, x)
    assert not verdict_of(net, x, converter=sabotaged("tanh", off))
    assert not verdict_of(net, x, converter=sabotaged("tanh", halved))


def test_one_wrong_element_is_found():
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("one", torch.eye(24)[7].reshape(3, 8) * 1e-4)

        def forward(self, x):
            return torch.exp(x) * 50, self.one

    def off(x):
        return cai.mul(cai.exp(x), cai.like(x, 1.00001))

    assert verify(Lookup(), None, (X,), trials=GIVEN)
    assert not verify(Lookup(), None, (X,), trials=GIVEN, converter=sabotaged("exp", off))


def test_nan_is_reported_as_not_compared():
    given = verdict_of(torch.sin, torch.full((3,), torch.nan))
    assert not given
    assert "nothing could be compared: all values are NaN on both sides" in str(given)
    some = verdict_of(torch.log, torch.tensor([-1.0, 1.0, 2.0]))
    assert some
    assert "NaN on both sides was not compared (inputs given)" in str(some)


def chosen_then_repeated(x):
    values, positions = torch.topk(x, 3)
    return values, positions.repeat(2, 1)


def test_equal_scores_are_a_tie_and_no_later_op_is_blamed():
    x = torch.zeros(2, 6)
    verdict = verdict_of(chosen_then_repeated, x)
    assert verdict, str(verdict)
    assert verdict.divergence is None


def test_a_discrete_output_is_exact_where_scores_are_apart():
    def best(x):
        return torch.neg(x).argmax(-1)

    assert verdict_of(best, X)
    assert not verdict_of(best, X, converter=sabotaged("neg", lambda x: x))


DTYPES = [torch.float32, torch.float16, torch.bfloat16]


class Small(nn.Module):
    """Attention, normalization and products, with a discrete output."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        for _ in range(3):
            q, k, v = self.project(self.norm(x)).chunk(3, -1)
            attended = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + nn.functional.gelu(self.out(attended))
        return x, x.argmax(-1), torch.log_softmax(x, -1)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, stride=2)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        y = nn.functional.silu(self.norm(self.first(x)))
        y = nn.functional.max_pool2d(self.second(y), 2)
        return y.mean((2, 3)), torch.sigmoid(y) > 0.5


class Quantized(nn.Module):
    """Rounds to steps: an element next to a boundary may be one step off."""

    def forward(self, x):
        scale = x.abs().amax() / 127
        steps = torch.round(torch.tanh(x * 3) / scale).clamp(-128, 127)
        return steps.to(torch.int8), steps * scale, torch.floor(x * 100) / 7


MODELS = {"attention": (Small, (2, 5, 16)), "conv": (Convolutions, (2, 3, 16, 16))}
MODELS["quantized"] = (Quantized, (64, 32))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", MODELS)
def test_a_correct_program_passes_in_each_dtype(name, dtype):
    make, shape = MODELS[name]
    torch.manual_seed(1)
    verdict = verify(make().eval().to(dtype), None, (torch.randn(shape, dtype=dtype),))
    assert verdict, str(verdict)
