"""A limit as large as an output does not make a program right."""

from __future__ import annotations

import json
import math
import warnings

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter, errors
from coreai_torch.capture.prepare import prepare
from coreai_torch.converter import capture_rules
from coreai_torch.ir import dialect as cai
from coreai_torch.verification import Subject, TrialPlan, verify
from coreai_torch.verification.limits import ErrorLimits

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
FEW = TrialPlan(seeds=1, sizes=0, edges=True, steps=2)
START = 1.7e9  # seconds since 1970


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def verdict_of(function, *args, **options):
    options.setdefault("trials", FEW)
    return verify(Model(function), None, args, engine="torch", **options)


def seconds(*offsets):
    return torch.tensor(offsets, dtype=torch.float64) + START


TIMES = seconds(12345.678, 12400.0)
PITCH = 200 + 30 * torch.sin(torch.arange(8 * 24000) / 9000.0)[None]


def day(t):
    return torch.sin(2 * math.pi * (t / 86400.0)).float()


def since(t):
    return (t - START).float()


def inner(x):
    return ((x.double() + 1e-9 - x.double()) * 1e9).float()


def phase(f0):
    return torch.sin(2 * math.pi * torch.cumsum(f0.double() / 24000, -1)).float()


def textbook_variance(x):
    x = x.double()
    return ((x * x).mean(-1) - x.mean(-1) ** 2).float()


def quadratic_root(b):
    b = b.double()
    return (-b + torch.sqrt(b * b - 4e-6)).float()


def minutes(t):
    return (t - START).div(60).floor().long()


def metres(lon):
    return ((lon - 13.404954) * 67_000).float()


def slope(t, y):
    t = t - t.mean()
    return ((t * y).sum() / (t * t).sum()).float()


ONES = 1e4 + torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
# The function, its inputs, an op at fault, and a part of the advice.
LOST = {
    "time of day": (day, (TIMES,), "sin", "reduce the phase modulo 1"),
    "time since a start": (since, (TIMES,), "sub", "subtract a start time"),
    "difference of equal numbers": (inner, (torch.randn(8),), "sub", "on the host, in float64"),
    "phase of an oscillator": (phase, (PITCH,), "sin", "reduce the phase modulo 1"),
    "variance": (textbook_variance, (ONES,), "sub", "on the host"),
    "root": (quadratic_root, (torch.rand(16) + 1,), "add", "on the host"),
    "whole minutes": (minutes, (seconds(*range(0, 6000, 59)),), "", "on the host"),
    "coordinates": (
        metres,
        (13.404954 + 1e-5 * torch.rand(16, dtype=torch.float64),),
        "sub",
        "on the host",
    ),
    "slope": (slope, (seconds(*range(32)), torch.randn(32)), "s", "on the host"),
    "one column of a matrix": (
        lambda t: torch.stack([t / START, t - START], -1).float(),
        (TIMES,),
        "sub",
        "subtract a start time",
    ),
    "half of a vector": (
        lambda t: torch.cat([t, t - START]).float(),
        (TIMES,),
        "sub",
        "subtract a start time",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_an_output_that_narrowing_decides_is_not_judged(name):
    function, args, op, advice = LOST[name]
    verdict = verdict_of(function, *args, trials=TrialPlan(seeds=1, sizes=0, edges=False))
    assert not verdict.ok
    assert not verdict.failures
    (found,) = verdict.unjudged
    assert found.narrowed
    assert found.op.startswith(f"aten.{op}")
    assert "test_unjudged.py" in found.source_line
    assert advice in found.advice
    text = str(verdict)
    assert "is not judged" in text.splitlines()[0]
    assert "the model computes in 64 bits, the program in 32" in text
    with pytest.raises(errors.UnjudgedError, match="CAT303"):
        verdict.raise_if_failed()
    data = verdict.as_dict()
    assert data["ok"] is False
    json.dumps(data, allow_nan=False)


class Clock(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("now", torch.tensor(START, dtype=torch.float64))

    def forward(self, x):
        self.now.add_(0.01)
        return x + (self.now - START).float()


def test_a_clock_in_a_state_is_not_judged():
    verdict = verify(Clock(), None, (torch.zeros(2),), engine="torch", trials=FEW)
    assert not verdict.ok


def softmax_of_large(x):
    return torch.softmax(x * 1000, -1)


def centered(x):
    return x - x.mean(-1, keepdim=True), (x - x.mean(-1, keepdim=True)).mean(-1)


def twice(x, y):
    return x @ y - (y.T @ x.T).T


def zeros_and_moves(x):
    return x * 0, torch.zeros(3), x.argsort(-1), x.argmax(-1), x.long()


def normalized(x):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],)), torch.linalg.vector_norm(x, dim=-1)


def attention(x):
    return torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])


def in_float64(x):
    y = torch.tanh(x.double() @ x.double().T)
    return torch.softmax(y, -1), y.mean().float(), y.float().argmax(-1)


def rotary(x):
    inverse = 1.0 / 10000 ** (torch.arange(0, 16, dtype=torch.float64) / 16)
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * inverse
    return x[:, :16] * angle.cos().float() + x[:, 16:] * angle.sin().float()


def undone(x):
    return (x.double() - x.double()).float(), x.double().relu().float()


def short_phase(f0):
    return torch.sin(2 * math.pi * torch.cumsum(f0.double() / 24000, -1)).float()


def since_on_the_host(t):
    return torch.sin(2 * math.pi * t / 86400).float(), (t * 2 - t).float()


ROWS = torch.randn(32, 32, generator=torch.Generator().manual_seed(1))
HONEST = {
    "long sum": (lambda x: x.flatten().repeat(64).cumsum(0), (ROWS,)),
    "softmax": (softmax_of_large, (ROWS,)),
    "centered": (centered, (ROWS,)),
    "two orders of one product": (twice, (ROWS, ROWS.T.contiguous())),
    "zeros and integers": (zeros_and_moves, (ROWS,)),
    "norms": (normalized, (ROWS,)),
    "attention": (attention, (ROWS,)),
    "attention in half precision": (attention, (ROWS.half(),)),
    "float64": (in_float64, (ROWS,)),
    "float64 of zeros": (in_float64, (torch.zeros(8, 8),)),
    "rotary positions": (rotary, (ROWS,)),
    "exact zeros in float64": (undone, (ROWS,)),
    "a few periods": (short_phase, (PITCH[:, :1000],)),
    "seconds since a start": (since_on_the_host, (torch.rand(8, dtype=torch.float64) * 1e4,)),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_is_judged(name):
    function, args = HONEST[name]
    verdict = verdict_of(function, *args)
    assert verdict.ok, str(verdict)
    assert not verdict.unjudged


def test_convert_raises_until_the_caller_accepts(tmp_path):
    path = tmp_path / "time.aimodel"
    with pytest.raises(errors.UnjudgedError, match=r"aten.sub.Tensor") as caught:
        coreai_torch.convert(Model(since), (TIMES,), output=path)
    assert not path.exists()
    assert isinstance(caught.value, errors.VerificationError)
    assert caught.value.verdict.unjudged[0].op == "aten.sub.Tensor"
    program = coreai_torch.convert(Model(since), (TIMES,), output=path, verify="accept-unjudged")
    assert path.exists()
    assert program.verdict.ok
    assert "it is accepted as it is" in str(program.verdict)


def lowered(op, lowering):
    """Return a converter with another lowering of an op."""
    converter = TorchConverter()
    converter.register_torch_lowering(f"aten::{op}", allow_override=True)(lowering)
    return converter


def test_accepting_what_is_not_judged_accepts_no_wrong_output():
    def two(t):
        return since(t), torch.tanh(t / START)

    wrong = lowered("tanh", lambda ctx, x: cai.sub(x, x))
    good = verdict_of(two, TIMES, mode="accept-unjudged")
    assert good.ok
    assert [u.op for u in good.unjudged] == ["aten.sub.Tensor"]
    bad = verdict_of(two, TIMES, mode="accept-unjudged", converter=wrong)
    assert not bad.ok
    assert bad.failures


# Wide limit: a decomposition that cancels in float32 widens its own limit.


def test_a_decomposition_that_loses_digits_is_not_excused_by_its_own_limit():
    def lossy(x, dim=None, *, correction=None, keepdim=False):
        return (x * x).mean(dim, keepdim) - x.mean(dim, keepdim) ** 2

    converter = TorchConverter(decompositions={torch.ops.aten.var.correction: lossy})
    x = 1e4 + torch.randn(8, 64, generator=torch.Generator().manual_seed(0))

    def variance(x):
        return torch.var(x, -1, correction=0)

    verdict = verdict_of(variance, x, converter=converter)
    assert not verdict.ok, str(verdict)
    assert verdict_of(variance, x).ok


# Undefined results: only generated inputs may be skipped, and never the given ones.


def test_given_inputs_are_compared_although_a_result_is_undefined_on_generated_ones():
    wrong = lowered("neg", lambda ctx, x: x)

    def cut(x):
        return torch.neg(x * 1e8).to(torch.int32)

    x = torch.linspace(-2, 2, 8)
    assert verdict_of(cut, x).ok
    verdict = verdict_of(cut, x, converter=wrong)
    assert not verdict.ok


# Ties: positions may differ where scores are equal, and nothing else may.


def test_a_tie_does_not_excuse_the_scores_or_other_rows():
    x = torch.tensor([[1.0, 1.0, 0.0, 0.0], [4.0, 3.0, 2.0, 1.0]])

    def ranked(x):
        return torch.sort(torch.neg(x), -1)

    assert verdict_of(ranked, x, trials=TrialPlan(seeds=0, sizes=0, edges=False)).ok
    wrong = lowered("neg", lambda ctx, x: x)
    verdict = verdict_of(
        ranked, x, converter=wrong, trials=TrialPlan(seeds=0, sizes=0, edges=False)
    )
    assert not verdict.ok


# Skipped inputs: a model that rejects all generated inputs is judged by the given ones alone.


def test_a_model_that_rejects_generated_inputs_is_judged_by_the_given_ones():
    class Offsets(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(10, 4, mode="sum")

        def forward(self, ids, offsets):
            return torch.neg(self.bag(ids, offsets))

    args = torch.arange(8), torch.tensor([0, 4])
    assert verify(Offsets(), None, args, engine="torch", trials=FEW).ok
    wrong = lowered("neg", lambda ctx, x: x)
    assert not verify(Offsets(), None, args, engine="torch", trials=FEW, converter=wrong).ok


def test_float64_kernels_of_another_function_excuse_nothing():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.bag = nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True)

        def forward(self, ids, offsets):
            return self.bag(ids, offsets)

    model, args = Bag(), (torch.arange(8), torch.tensor([0, 4]))
    wrong = Model(lambda ids, offsets: model.bag.weight[ids].sum(0, keepdim=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = coreai_torch.convert(wrong, args, verify=False)
    verdict = verify(model, program, args, engine="torch", trials=FEW)
    assert not verdict.ok


# Wide limit: each cast to half precision widens the limits of a deep model.


class Deep(nn.Module):
    """Normalizes in float32 and computes in half precision, as decoders do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            wide = x.float()
            normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
            x = x + torch.tanh(layer(normal.to(x.dtype)))
        return x


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_wide_limits_of_half_precision_accept_no_wrong_program(dtype):
    model, x = Deep().eval().to(dtype), ROWS.to(dtype)
    assert verify(model, None, (x,), engine="torch", trials=FEW).ok
    few = TrialPlan(seeds=1, sizes=0, edges=False)
    for change in (lambda ctx, x: cai.sub(x, x), lambda ctx, x: cai.mul(x, cai.like(x, 0.5))):
        wrong = lowered("tanh", change)
        verdict = verify(model, None, (x,), engine="torch", trials=few, converter=wrong)
        assert not verdict.ok, str(verdict)


def positions():
    return torch.sin(torch.arange(4, dtype=torch.float64) * 0.1)


@pytest.mark.parametrize(
    ("function", "loses"),
    [
        (lambda x: x * positions().float(), False),  # the table is computed before narrowing
        (lambda x: (x.double() * 0.5).float(), False),
        (lambda x: (x.double() * positions()).float(), True),
    ],
)
def test_only_lost_digits_are_analyzed_apart(function, loses):
    x = torch.ones(4)
    captured = prepare(Model(function), (x,), rules=capture_rules(TorchConverter()))
    subject = Subject(captured.program, captured.plan, captured.reference)
    (found,) = ErrorLimits(subject).of(subject.calls(lambda step: [x], 1))
    assert (found.find_precise is not None) is loses
