"""Results within strict limits are right without an error analysis; others need it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coreai_torch import verify
from coreai_torch.numerics.strict import computed_nodes, strictly
from coreai_torch.verification import limits


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


def test_computed_values_are_rounded_on_all_paths():
    def outputs(x, y):
        z = torch.sin(x)
        return z.flip(0), torch.cat([z, y]), torch.relu(z).mT, torch.round(z), z.max(-1).values

    program = torch.export.export(Model(outputs), (torch.ones(2, 2), torch.ones(2, 2)))
    graph = program.run_decompositions({}).graph
    (returned,) = (n for n in graph.nodes if n.op == "output")
    computed = computed_nodes(graph)
    assert [n in computed for n in returned.args[0]] == [True, False, True, False, False]
