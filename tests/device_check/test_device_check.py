"""The check of programs on the units of this machine, which has one: the installed runtime."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch.debugging.compute_plan import ComputePlan
from coreai_torch.device_check import kit, units
from coreai_torch.device_check.cases import CASES, Case
from coreai_torch.device_check.kit import Kit, check
from coreai_torch.device_check.tables import lines, outcomes, rules
from coreai_torch.errors import ConversionError
from coreai_torch.targets.placing import RULES

# Rules about what the built-in programs cannot have.
ELSEWHERE = {
    "HAZ54": "programs have static sizes",
    "PLACE02": "this converter emits no interpolate of the nearest element",
    "HAZ35": "coreai-core 1.0.0b3 compiles it for no device",
    "HAZ09": "a Metal kernel needs its source",
    "HAZ41": "compressed weights have no built-in program",
    "PLACE16": "compressed weights have no built-in program",
    "PLACE17": "compressed weights have no built-in program",
}

TWICE = Case(
    "twice",
    lambda: (nn.SiLU().half(), (torch.linspace(-2, 2, 8).half(),)),
    "PLACE13",
    lambda: (nn.ReLU().half(), (torch.linspace(-2, 2, 8).half(),)),
)


@pytest.fixture(scope="module")
def found():
    return check([TWICE], runs=2)


def test_every_rule_has_a_built_in_program():
    assert {case.code for case in CASES} - {""} == {rule.code for rule in RULES} - ELSEWHERE.keys()
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(bool(case.library) for case in CASES) == 10


def test_a_program_runs_in_each_form(found):
    assert [(p["name"], p["form"]) for p in found.programs] == [
        ("twice", "plain"),
        ("twice", "rewritten"),
        ("twice", "alternative"),
    ]
    for program in found.programs:
        (result,) = program["results"]
        assert (result["unit"], result["status"]) == ("runtime", "ok")
        assert result["median_ms"] > 0
        (output,) = result["outputs"].values()
        assert output["relative_error"] < 1e-3
        assert output["norm_ratio"] == pytest.approx(1, abs=1e-3)


def test_a_kit_is_read_as_it_was_written(found, tmp_path):
    found.write(tmp_path / "kit.json")
    assert Kit.read(tmp_path / "kit.json").data == json.loads(json.dumps(found.data))


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other"}'])
def test_other_files_are_not_kits(text, tmp_path):
    (tmp_path / "kit.json").write_text(text)
    with pytest.raises(ConversionError, match="is not a kit"):
        Kit.read(tmp_path / "kit.json")


def test_a_kit_has_no_paths(found, tmp_path):
    assert "/" not in json.dumps({**found.data, "machine": {}}).replace("1/", "")


def test_a_wrong_number_is_recorded(monkeypatch):
    def halved(asset, unit, inputs, runs):
        ran = units.run(asset, unit, inputs, runs)
        return replace(ran, outputs={name: x / 2 for name, x in ran.outputs.items()})

    monkeypatch.setattr(kit, "run", halved)
    (program, *_) = check([TWICE], runs=1).programs
    (result,) = program["results"]
    assert result["status"] == "wrong"
    (output,) = result["outputs"].values()
    assert output["norm_ratio"] == pytest.approx(0.5, abs=1e-2)


def test_numbers_that_are_not_finite_are_wrong(monkeypatch):
    def broken(asset, unit, inputs, runs):
        ran = units.run(asset, unit, inputs, runs)
        return replace(ran, outputs={n: np.full_like(x, np.nan) for n, x in ran.outputs.items()})

    monkeypatch.setattr(kit, "run", broken)
    (result,) = check([TWICE], runs=1).programs[0]["results"]
    assert result["status"] == "wrong"
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_a_crash_ends_one_run_only(tmp_path):
    ran = units.run(tmp_path / "missing.aimodel", "runtime", {}, 1)
    assert ran.error
    assert not ran.crashed
    crashed = units.run(_Crash(), "runtime", {}, 1)
    assert crashed.crashed


class _Crash:
    """An argument that ends the child that reads it."""

    def __reduce__(self):
        import os

        return os.abort, ()


def test_a_case_without_its_library_is_skipped():
    def build():
        raise ImportError("no library")

    found = check([Case("absent", build)], runs=1)
    assert found.data["skipped"] == {"absent": "ImportError: no library"}
    assert "  skipped absent: ImportError: no library" in list(lines(found, ()))


def test_recorded_plans_are_compared_with_the_estimates(monkeypatch):
    """The runtime plays the neural engine, with plans that put every op on the GPU."""
    monkeypatch.setattr(kit, "units", lambda: ("neural_engine",))
    real = units.run
    monkeypatch.setattr(kit, "run", lambda a, unit, i, runs: real(a, "runtime", i, runs))
    asked = []

    def plan_of(name, unit):
        asked.append((name, unit))
        rows = [{"operation_id": n, "devices": ["GPU"]} for n in range(50)]
        return ComputePlan.read({"entries": rows})

    found = check([TWICE], runs=1, plan_of=plan_of)
    assert asked[0] == ("twice.plain", "neural_engine")
    (none,) = rules(found)
    assert (none.code, none.right) == ("none", 0)
    assert none.wrong == none.units["gpu"] > 0
    assert any("runs on neural_engine" in line for line in lines(found, [none]))


def test_outcomes_say_what_the_rule_says(found):
    (first, *_) = outcomes(found)
    assert (first["code"], first["effect"], first["status"]) == ("PLACE13", "wrong", "ok")
    assert "silu" in first["says"]
    assert "no compute plan was recorded" in "\n".join(lines(found, rules(found)))


def test_an_asset_is_compared_with_torch(tmp_path):
    path = tmp_path / "net.aimodel"
    coreai_torch.convert(nn.Linear(4, 3), (torch.ones(2, 4),), verify=False, output=path)
    (program,) = check(assets=[path], runs=1).programs
    assert (program["name"], program["form"]) == ("net.aimodel", "asset")
    assert program["results"][0]["status"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_built_in_program_runs_here(case):
    if case.library:
        pytest.importorskip(case.library)
    found = check([case], runs=1)
    assert found.data["skipped"] == {}
    assert {row["status"] for row in outcomes(found)} == {"ok"}
