"""The Core AI backend of executorch delegates models to this converter: lower, run, compare.

The runtime of executorch executes a Core AI delegate on macOS only, so the program that the backend
converts runs in the runtime of coreai-core instead.
"""

import copy

import pytest
import torch
from coreai.authoring import AIProgram
from runtime import descriptor, run, run_with_state
from torch import nn

import coreai_torch.converter  # noqa: F401  its `save_asset` is replaced below

pytest.importorskip("executorch", reason="executorch is not installed")


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        self.total.add_(x)
        return self.linear(self.total).relu()


@pytest.fixture
def saved(monkeypatch):
    """Collect copies of the programs that the backend saves."""
    programs, save = [], AIProgram.save_asset

    def save_asset(self, *args, **kwargs):
        programs.append(copy.deepcopy(self))
        return save(self, *args, **kwargs)

    monkeypatch.setattr(AIProgram, "save_asset", save_asset)
    return programs


def lowered(model, *args):
    from executorch.backends.apple.coreai.partition.partitioner import CoreAIPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model.eval(), args)
    edge = to_edge_transform_and_lower(exported, partitioner=[CoreAIPartitioner()])
    assert len(edge.to_executorch().buffer) > 0
    return [str(n.target) for n in edge.exported_program().graph.nodes if n.op == "call_function"]


def test_whole_model_is_delegated(saved):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(2, 8)
    names = lowered(model, x)
    assert "executorch_call_delegate" in names[0]
    assert not any("aten" in name for name in names), names
    (program,) = saved
    (name,) = descriptor(program).input_names
    (got,) = run(program, {name: x}).values()
    torch.testing.assert_close(got, model(x).detach(), rtol=1e-5, atol=1e-5)


def test_mutated_buffer_is_a_state_of_the_delegate(saved):
    torch.manual_seed(0)
    model, x = Counter(), torch.randn(2, 8)
    names = lowered(model, x)
    assert "executorch_call_delegate" in names[0]
    (program,) = saved
    found = descriptor(program)
    (name,), (state,) = found.input_names, found.state_names
    outputs, states = run_with_state(program, {name: x}, {state: torch.ones(2, 8)})
    (got,) = outputs.values()
    torch.testing.assert_close(states[state], x + 1, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got, model.linear(x + 1).relu().detach(), rtol=1e-5, atol=1e-5)
