"""`coreai-torch report`."""

from __future__ import annotations

import torch
from cli.shell import saved, shell  # noqa: F401  a fixture
from torch import nn

from coreai_torch import TorchConverter

INPUT = "x=f32[n:2:1..8,4]"


def test_report_verifies_profiles_and_writes_one_page(shell, tmp_path):  # noqa: F811
    made = shell(
        "convert", "models.py:net", "-i", INPUT, "-o", "net.aimodel", "--debug", "--no-verify"
    )
    assert made.code == 0, made.err
    run = shell(
        "report", "net.aimodel", "-o", "net.html", "--source", "models.py:net", "-i", INPUT,
        "--profile", "--runs", 2, "--size", 3, "--json",
    )  # fmt: skip
    assert run.code == 0, run.out + run.err
    result = run.json
    page = (tmp_path / "net.html").read_text()
    assert result.keys() == {"ok", "output", "bytes", "ops", "verified", "median_ms"}
    assert result["verified"] is True
    assert result["bytes"] == len(page.encode())
    assert result["median_ms"] > 0
    assert "matches torch" in page
    assert "the median of 2" in page
    assert "models.py" in page, "source lines"


def test_different_numbers_exit_with_code_1_and_write_a_page(shell, tmp_path):  # noqa: F811
    class Other(nn.Module):
        def forward(self, x):
            return x + 1

    saved(tmp_path / "other.aimodel", Other(), torch.ones(2, 4))
    run = shell("report", "other.aimodel", "-o", "a/other.html", "--source", "models.py:with_args")
    assert run.code == 1
    assert "numbers differ" in run.out
    assert "does not match torch" in (tmp_path / "a" / "other.html").read_text()


def test_wrong_arguments_are_explained(shell, tmp_path):  # noqa: F811
    saved(tmp_path / "net.aimodel", nn.ReLU(), torch.ones(2), mode=TorchConverter.Mode.RELEASE)
    assert shell("report", "none.aimodel", "-o", "x.html").code == 2
    assert (
        "no function 'other'"
        in shell("report", "net.aimodel", "-o", "x.html", "--function", "other").err
    )
    assert "--source" in shell("report", "net.aimodel", "-o", "x.html", "-i", INPUT).err
    assert not (tmp_path / "x.html").exists()
    run = shell("report", "net.aimodel", "-o", "x.html")
    assert run.code == 0
    assert "1 op, a page of" in run.out
    assert "numbers not checked" in run.out
