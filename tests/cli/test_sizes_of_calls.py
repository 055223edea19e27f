"""Dynamic sizes in `bench`, `report --profile` and `run`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

MODEL = """
from torch import nn


def net():
    return nn.Conv2d(3, 2, 3).eval()
"""


@pytest.fixture(autouse=True)
def asset(tmp_path, monkeypatch, shell):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODEL)
    sizes = "input=f32[1,3,h:16:4..64,w:24:4..64]"
    result = shell("convert", "nets.py:net", "-i", sizes, "--verify", "none", "-o", "net.aimodel")
    assert result.code == 0


def test_bench_times_at_the_sizes_of_the_example_and_says_so(shell):
    result = shell("bench", "net.aimodel", "--runs", "2", "--json")
    assert (result.code, result.json["sizes"]) == (0, "h=16, w=24")
    assert "at h=20, w=24 (" in shell("bench", "net.aimodel", "--runs", "2", "--size", "h=20").out


def test_bench_rejects_sizes_that_the_program_does_not_have(shell):
    result = shell("bench", "net.aimodel", "--size", "rows=20")
    assert result.code != 0
    assert "no dynamic size is called 'rows'" in result.err


@pytest.mark.parametrize("command", ["bench", "report"])
def test_sizes_by_name_reach_the_profiler(shell, command):
    extra = ("--profile", "-o", "net.html") if command == "report" else ("--trace", "net.json")
    result = shell(command, "net.aimodel", "--runs", "2", "--size", "h=20,w=20", *extra)
    assert result.code == 0, result.err


def test_run_rejects_an_input_outside_the_range(shell):
    from coreai_torch.asset.metadata import SIZES, annotation

    _, least, *_ = annotation(Path("net.aimodel"), SIZES)["main"]["input"]["2"]
    np.save("x.npy", np.zeros((1, 3, least - 1, 24), np.float32))
    result = shell("run", "net.aimodel", "x.npy")
    assert result.code == 2
    assert f"but the program was converted for h in {least}.." in result.err.replace("\n", " ")
    np.save("x.npy", np.zeros((1, 3, least, 24), np.float32))
    assert shell("run", "net.aimodel", "x.npy").code == 0
