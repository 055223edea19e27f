"""States in half precision: sums stay in float32, caches become half precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coreai_torch import get_decomp_table
from coreai_torch.precision import to_half
from coreai_torch.precision.defaults import accumulators

X = torch.rand(4, 8, generator=torch.Generator().manual_seed(0)) + 0.5


class Sum(nn.Module):
    """A sum over all calls: in float16 it stops at 2048."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(8))

    def forward(self, x):
        self.state.add_(x.mean(0))
        return x + self.state


class Average(Sum):
    """An average with a rate of 0.001: in float16 each step is rounded away."""

    def forward(self, x):
        self.state.lerp_(x.mean(0), 0.001)
        return x * 1e-3 + self.state


class Decay(Sum):
    """A state with a factor near 1, which float16 rounds."""

    def forward(self, x):
        self.state.copy_(torch.sigmoid(x.mean(0) + 7) * self.state + x.mean(0) * 1e-3)
        return x * 1e-3 + self.state


class Blend(Sum):
    """A cache that is written with a mask."""

    def forward(self, x):
        mask = (torch.arange(8) == 3).float()
        self.state.copy_(x.mean(0) * mask + self.state * (1 - mask))
        return x + self.state


class Cache(Sum):
    def forward(self, x):
        self.state[2:6] = x.mean(0)[:4]
        return x + self.state


def exported(model):
    return torch.export.export(model.eval(), (X,)).run_decompositions(get_decomp_table())


@pytest.mark.parametrize("model", [Sum, Average, Decay])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_error_of_a_sum_does_not_grow_with_the_calls(model, precision):
    program = exported(model())
    half, report = to_half(program, [[X]], precision)
    assert half.state_dict["state"].dtype == torch.float32
    assert "a state that is added to" in report.defaults.values()
    reference, module = program.module(), half.module()
    for _ in range(2500):
        want, got = reference(X), module(X)
    assert float((want - got).norm() / want.norm()) < report.limit


@pytest.mark.parametrize("model", [Blend, Cache])
def test_caches_become_half_precision(model):
    half, report = to_half(exported(model()), [[X]])
    assert half.state_dict["state"].dtype == torch.float16
    assert "a state that is added to" not in report.defaults.values()


class Branching(Sum):
    """A chain of sums with two operands each: 2**60 paths lead to the state."""

    def forward(self, x):
        value, before = self.state + x.mean(0), x.mean(0)
        for _ in range(60):
            value, before = value * 0.5 + before * 0.5, value
        self.state.copy_(value)
        return x + value


def test_many_paths_to_a_state_are_searched_once():
    program = torch.export.export(Branching(), (X,)).run_decompositions(get_decomp_table())
    path = {node.name for node in accumulators(program)}
    assert {"add", "mul", "add_1"} <= path
