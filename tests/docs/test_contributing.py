"""Check that the worked example of CONTRIBUTING.md gives torch's numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import coreai_torch
import coreai_torch.ops  # before the registry is replaced
from coreai_torch import TorchConverter
from coreai_torch.lowering import registry
from coreai_torch.verification import TrialPlan

GUIDE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()


class Sinc(torch.nn.Module):
    def forward(self, x):
        return torch.sinc(x)


@pytest.fixture
def example(monkeypatch):
    """Run the example as a file of ops/pointwise would run, with an empty registry."""
    own = registry.Registry()
    monkeypatch.setitem(registry._BY_TARGET, "", own)
    (code,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    exec(
        compile(code, "CONTRIBUTING.md", "exec"),
        {"__name__": "example", "__package__": "coreai_torch.ops.pointwise"},
    )
    monkeypatch.undo()
    (entry,) = own
    return entry


def test_worked_example_gives_torch_numbers(example):
    converter = TorchConverter()
    converter.register_torch_lowering("aten::sinc", allow_override=True)(example.fn)
    table = coreai_torch.get_decomp_table()
    del table[torch.ops.aten.sinc.default]
    floats = [
        case.args[0].make(0) for case in example.cases if case.args[0].dtype.is_floating_point
    ]
    assert len(floats) == 3
    for x in floats:
        exported = torch.export.export(Sinc(), (x,)).run_decompositions(table)
        verdict = coreai_torch.verify(
            exported, None, converter=converter, trials=TrialPlan(seeds=0, sizes=0, edges=False)
        )
        assert verdict.ok, str(verdict)


def test_architecture_lists_the_folders_of_tests():
    tests = Path(__file__).parents[1]
    page = (tests.parent / "docs" / "architecture.md").read_text()
    folders = {path.name for path in tests.iterdir() if any(path.glob("*.py"))}
    assert set(re.findall(r"`tests/(\w+)`", page)) == folders | {"data"}
