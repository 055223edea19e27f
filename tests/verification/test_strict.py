"""Results within strict limits are right without an error analysis; others need it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, verify
from coreai_torch.ir import dialect
from coreai_torch.numerics.strict import StrictLimit, computed_nodes, strictly
from coreai_torch.verification import TrialPlan, limits


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.fixture
def analyses(monkeypatch):
    """Return a list that grows with each error analysis."""
    made = []

    class Counted(limits.Analysis):
        def run(self, *args, **kwargs):
            made.append(self)
            return super().run(*args, **kwargs)

    monkeypatch.setattr(limits, "Analysis", Counted)
    return made


def _layer(x, w):
    return torch.softmax(nn.functional.layer_norm(x @ w, (8,)), -1), x.argmax(-1)


def test_a_right_program_needs_no_analysis(analyses):
    verdict = verify(Model(_layer), None, (torch.randn(4, 8), torch.randn(8, 8)))
    assert verdict, verdict
    assert len(verdict.trials) >= 12
    assert not analyses


def test_rounding_errors_beyond_strict_limits_are_analyzed(analyses):
    x = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)) * 1e3
    verdict = verify(Model(lambda x: (x - x.mean(-1, keepdim=True)).sum(-1)), None, (x,))
    assert verdict, verdict
    assert analyses


def test_quick_has_no_time_for_the_analysis_of_generated_inputs(analyses, monkeypatch):
    monkeypatch.setattr(limits, "_ANALYSIS", 1e9)  # times as long as a call
    monkeypatch.setattr(StrictLimit, "accepting", lambda *given: None)
    verdict = verify(Model(torch.sin), None, (torch.randn(8),), mode="quick")
    assert verdict, verdict
    assert {t.inputs for t in verdict.trials} == {"given"}
    assert "seed 1: an error analysis would exceed the time limit of 5 s" in verdict.left_out
    assert len(analyses) == 1


def test_quick_finds_wrong_generated_results_without_time_for_the_analysis(monkeypatch):
    monkeypatch.setattr(limits, "_ANALYSIS", 1e9)
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::relu", allow_override=True)
    def leaky(ctx, x):
        return dialect.maximum(x, dialect.like(x, -0.125))

    verdict = verify(Model(torch.relu), None, (torch.ones(4),), converter=converter, mode="quick")
    assert not verdict
    assert {t.inputs for t in verdict.failures} == {"negative"}


def test_float64_is_analyzed_although_numbers_are_equal(analyses):
    def offset(t):
        return (t - 1024.0).float()

    verdict = verify(Model(offset), None, (torch.tensor([1025.0, 1026.0], dtype=torch.float64),))
    assert analyses
    assert all(t.ok for t in verdict.trials)


@pytest.mark.parametrize("large", [11, 23])
def test_large_values_do_not_widen_the_limits_of_small_ones(large):
    want = torch.cat([torch.rand(large) * 1e6, torch.rand(24 - large) * 1e-2 + 1e-3])
    allowed = strictly(want, computed=True)
    assert (allowed.error[large:] < 2e-8).all()


class LastScore(nn.Module):
    def forward(self, x):
        return torch.cat([torch.cos(x) * 1e4, torch.sigmoid(x[:, :1])], 1)


def test_large_values_do_not_hide_a_wrong_score_in_the_same_row():
    """The score is not so small that no value of such a row is by chance."""
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::sigmoid", allow_override=True)
    def too_large(ctx, x):
        return dialect.mul(dialect.sigmoid(x), dialect.like(x, 1.01))

    x = torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
    plan = TrialPlan(seeds=0, edges=False)
    verdict = verify(LastScore(), None, (x,), trials=plan, locate=False, converter=converter)
    assert not verdict
    assert verify(LastScore(), None, (x,), trials=plan)


def test_a_row_of_coordinates_does_not_widen_the_limits_of_scores():
    want = torch.stack([torch.rand(100) * 640, torch.rand(100)])
    assert (strictly(want, computed=True).error[1] < 1.01e-6).all()


def test_values_near_zero_have_the_limits_of_those_around():
    want = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    assert (strictly(want, computed=True).error > 1e-6).all()


def test_zeros_and_moved_values_must_be_equal():
    want = torch.randn(4, 4).relu()
    assert not strictly(want, computed=True).error[want == 0].any()
    assert not strictly(want, computed=False).error.any()
    assert not strictly(torch.arange(4), computed=True).error.any()


LONG = 100  # ops


def _result():
    """Return a result, its rounded copy, and the largest value around each element."""
    generator = torch.Generator().manual_seed(0)
    want = torch.randn(1, 8, 64, 64, generator=generator)
    around = strictly(want, computed=True).error / 1e-6
    noise = torch.randn(want.shape, generator=generator) * 4e-7
    return want, (want + noise * around).float(), around


def test_rounding_behind_a_long_chain_is_accepted():
    want, got, _ = _result()
    assert StrictLimit.of(want, LONG).accepting(got, want) is not None
    assert StrictLimit.of(want, 4).accepting(got, want) is None
    assert StrictLimit.of(want.half(), LONG).growth == 1


def _element(got, around):
    got[0, 3, 5, 7] = got[0, 3, 5, 7] + 4.9e-6 * around[0, 3, 5, 7]


def _corner(got, around):
    got[..., -6:, -6:] = got[..., -6:, -6:] + 2e-6 * around[..., -6:, -6:]


def _channel(got, around):
    got[0, 3] = got[0, 3] + 1.5e-6 * around[0, 3]


def _all(got, around):
    got *= 1 + 2e-6


def _nan(got, around):
    got[0, 0, 0, 0] = torch.nan


def _large(got, around):
    got[0, 0] *= 1 + 1e-5


@pytest.mark.parametrize("change", [_element, _corner, _channel, _all, _nan, _large])
def test_other_errors_behind_a_long_chain_need_the_analysis(change):
    want, got, around = _result()
    quiet = (want + (got - want) / 8).float() if change in (_element, _corner) else got
    change(quiet, around)
    assert StrictLimit.of(want, LONG).accepting(quiet, want) is None


def test_zeros_behind_a_long_chain_must_be_equal():
    want, got, _ = _result()
    want[0, 0, 0, 0], got[0, 0, 0, 0] = 0, 1e-12
    assert StrictLimit.of(want, LONG).accepting(got, want) is None


def test_chains_count_ops_that_round():
    def outputs(x):
        y = torch.sin(x)
        return y, torch.relu(y).exp() + 1, torch.round(y).exp()

    program = torch.export.export(Model(outputs), (torch.ones(2, 2),))
    graph = program.run_decompositions({}).graph
    (returned,) = (n for n in graph.nodes if n.op == "output")
    chains = computed_nodes(graph)
    assert [chains[n] for n in returned.args[0]] == [1, 3, 1]


def test_equal_results_are_compared_once(monkeypatch):
    compared = []

    def counted(*args):
        compared.append(args)
        return compare(*args)

    compare = limits.compare
    monkeypatch.setattr(limits, "compare", counted)
    plan = TrialPlan(seeds=0, edges=False)
    verdict = verify(Model(lambda x: x * 2), None, (torch.randn(3, 4),), trials=plan)
    assert verdict
    assert len(verdict.trials) == 2  # before and after optimize()
    assert len(compared) == 1


def test_computed_values_are_rounded_on_all_paths():
    def outputs(x, y):
        z = torch.sin(x)
        return z.flip(0), torch.cat([z, y]), torch.relu(z).mT, torch.round(z), z.max(-1).values

    program = torch.export.export(Model(outputs), (torch.ones(2, 2), torch.ones(2, 2)))
    graph = program.run_decompositions({}).graph
    (returned,) = (n for n in graph.nodes if n.op == "output")
    computed = computed_nodes(graph)
    assert [n in computed for n in returned.args[0]] == [True, False, True, False, False]
