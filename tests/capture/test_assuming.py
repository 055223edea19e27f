"""`assume="example"`: the values of the example decide branches that torch cannot export."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn
from torch.export import Dim

from coreai_torch import convert, read_metadata, verify
from coreai_torch.cli import main
from coreai_torch.errors import ArgumentTypeError, ExportError


class Masked(nn.Module):
    def forward(self, x, mask):
        if not mask.any():  # reads a mask
            return x * 2
        return torch.where(mask, x, 0.0)


class Cropped(nn.Module):
    def forward(self, x, size):
        return x[..., : int(size[0])] + 1  # reads a size


class Unchecked(nn.Module):
    def forward(self, x):
        return x[: int(x.sum().item())].sum()  # reads a float


X = torch.arange(12.0).reshape(3, 4)
NONE, SOME = torch.zeros(4, dtype=torch.bool), torch.tensor([True, False, True, True])


def test_each_branch_is_the_one_of_the_example():
    for mask, want in ((NONE, X * 2), (SOME, torch.where(SOME, X, 0.0))):
        program = convert(Masked(), (X, mask), assume="example")
        (found,) = program.metadata["assumptions"]
        assert found["condition"] == f"Eq(u0, 1) is {bool(mask.any())}"
        assert found["line"].endswith("in forward: if not mask.any():  # reads a mask")
        assert "test_assuming.py" in found["line"]
        (got,) = runtime.run(program, {"x": X, "mask": mask}).values()
        assert got.equal(want)


def test_inputs_that_break_an_assumption_are_skipped_and_named(tmp_path):
    path = tmp_path / "masked.aimodel"
    rows = {"x": {0: Dim("rows", min=1, max=9)}, "mask": None}
    program = convert(Masked(), (X, SOME), dynamic_shapes=rows, assume="example", output=path)
    assert read_metadata(path)["assumptions"] == program.metadata["assumptions"]
    verdict = verify(Masked(), path, (X, SOME), dynamic_shapes=rows)
    assert verdict.ok
    assert len(verdict.trials) > 8
    (skipped,) = [text for text in verdict.left_out if text.startswith("zeros")]
    assert "an assumption does not hold: Runtime assertion failed" in skipped


def test_a_size_that_follows_from_values_is_the_one_of_the_example():
    program = convert(Cropped(), (X, torch.tensor([3, 2])), assume="example")
    (found,) = program.metadata["assumptions"]
    assert found["condition"] == "u0 is 3"
    assert "int(size[0])" in found["line"]


def test_an_assumption_that_the_graph_does_not_check_is_checked_by_its_results():
    program = convert(Unchecked(), (torch.ones(5),), assume="example")
    assert [one["condition"] for one in program.metadata["assumptions"]] == [
        "TruncToInt(zuf0) is 5"
    ]
    skipped = [text for text in program.verdict.left_out if "gives other results" in text]
    assert skipped
    assert program.verdict.ok


def test_a_model_that_torch_can_export_has_no_assumptions():
    program = convert(nn.Linear(4, 2), (X,), assume="example")
    assert program.verdict.ok
    assert "assumptions" not in program.metadata


def test_the_default_is_an_error_that_names_the_option():
    with pytest.raises(ExportError, match="assume='example'"):
        convert(Masked(), (X, SOME))
    with pytest.raises(ArgumentTypeError, match="assume is 'examples'"):
        convert(Masked(), (X, SOME), assume="examples")


def test_a_model_that_fails_on_the_example_is_rejected_as_before():
    with pytest.raises(ExportError, match="itself fails on the given inputs"):
        convert(Masked(), (X, torch.ones(5, dtype=torch.bool)), assume="example")


def test_half_precision_keeps_the_assumptions():
    program = convert(
        Masked(), (X, SOME), assume="example", precision="float16", calibration=[(X, SOME)]
    )
    assert len(program.metadata["assumptions"]) == 1


def test_the_command_line_prints_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    source += "        if x.sum() > 100:\n            return x\n        return x * 2\n"
    (tmp_path / "net.py").write_text(source)
    given = ["convert", "net.py:Net", "-i", "x=f32[2,3]", "-o", "net.aimodel"]
    for arguments in ([*given, "--assume", "example"], ["inspect", "net.aimodel"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert "in forward: if x.sum() > 100:" in capsys.readouterr().out
