"""`coreai-torch place`."""

from __future__ import annotations

import json

import pytest

MODEL = """
import torch
from torch import nn


def net():
    layers = nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1)
    return nn.Sequential(*layers).half().eval(), (torch.ones(1, 3, 4, 4).half(),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODEL)


def test_place_lists_regions_borders_and_what_to_change(shell):
    result = shell("place", "nets.py:net")
    assert result.code == 0
    assert "3 regions, an estimate from public reports" in result.out
    assert "2 regions fewer if 1 op ran there" in result.out
    assert "group_norm, module '1'" in result.out


@pytest.mark.parametrize(("most", "code"), [("3", 0), ("2", 1)])
def test_more_regions_than_allowed_exit_with_1(shell, most, code):
    result = shell("place", "nets.py:net", "--max-regions", most, "--json")
    assert (result.code, result.json["regions"]) == (code, {"main": 3})


def test_an_unknown_unit_is_wrong_usage(shell):
    assert shell("place", "nets.py:net", "--target", "tpu").code == 2


def test_place_is_compared_with_a_plan(shell, tmp_path):
    assert shell("convert", "nets.py:net", "-o", "net.aimodel", "--no-verify").code == 0
    ops = shell("place", "net.aimodel", "--json").json["ops"]
    entries = [{"operation_id": op["op_id"], "devices": ["Neural Engine"]} for op in ops]
    (tmp_path / "plan.json").write_text(json.dumps({"entries": entries}))
    result = shell("place", "net.aimodel", "--against", "plan.json", "--json")
    rows = {row["code"]: row for row in result.json["against"]}
    assert (rows["PLACE06"]["right"], rows["PLACE06"]["wrong"]) == (0, 1)
    assert (rows["none"]["right"], rows["none"]["wrong"]) == (len(ops) - 1, 0)
    text = shell("place", "net.aimodel", "--against", "plan.json").out
    assert "PLACE06     0 right    1 wrong  group norm" in text


def test_a_device_check_writes_a_kit_that_place_reads(shell, tmp_path):
    result = shell("device-check", "--only", "PLACE13", "--runs", "1", "-o", "kit.json", "--json")
    assert result.code == 0
    assert {row["form"] for row in result.json["outcomes"]} == {"plain", "rewritten"}
    shown = shell("place", "--against", "kit.json")
    assert shown.code == 0
    assert "PLACE13  silu" in shown.out
    assert "no compute plan was recorded" in shown.out
    assert shell("place").code == 2
    assert shell("device-check", "--only", "nothing").code == 2


def test_place_writes_a_report(shell, tmp_path):
    assert shell("convert", "nets.py:net", "-o", "net.aimodel", "--no-verify").code == 0
    result = shell("place", "net.aimodel", "--html", "net.html", "--target", "gpu", "--json")
    assert (result.code, result.json["html"]) == (0, "net.html")
    assert "1 region on gpu, an estimate" in (tmp_path / "net.html").read_text()
