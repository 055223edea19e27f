"""The guide: its plan is valid and its query runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lazy_import import lazy_import

from coreai_torch.fleet import columns, options, parse_plan, plan
from coreai_torch.fleet.columns import COLUMNS
from coreai_torch.fleet.results import Writer

duckdb = lazy_import("duckdb")
yaml = lazy_import("yaml")
PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
HERE = Path(__file__).parent


def _block(language, place=0):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[place]


def test_plan_of_the_page_is_valid(tmp_path):
    (tmp_path / "models.py").write_text((HERE / "fleet_models.py").read_text())
    data = yaml.safe_load(_block("yaml"))
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "a.pt2").touch()
    tasks = list(parse_plan(data, folder=tmp_path).tasks())
    assert len(tasks) == (2 + 1 + 1) * 2 * 2 + 2  # only net uses the sizes
    assert "net[batch=8,float16,int8]" in {task.id for task in tasks}


def test_function_of_the_page_judges_the_tasks_of_its_plan(tmp_path):
    functions, reported = {}, []
    exec(_block("python"), functions)
    data = yaml.safe_load(_block("yaml", 1))
    for task in parse_plan(data, folder=tmp_path).tasks():
        assert task.call == "checks:judge"
        result = functions["judge"](task, reported.append)
        assert result == {"verdict": "pass", "samples": task.config["samples"]}
    assert len(reported) == 120


def test_query_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    empty = {name: "" if kind is str else None for name, kind in COLUMNS.items()}
    verdicts = ["pass", "error", "error", "crash"]
    with Writer("results") as writer:
        for number, verdict in enumerate(verdicts):
            cause = {"error": "no lowering", "crash": "SIGSEGV"}.get(verdict, "")
            row = {"id": f"t{number}", "verdict": verdict, "cause": cause, "seconds": 2.0}
            writer.write({**empty, **row})
    found = duckdb.sql(_block("sql")).fetchall()
    assert found == [("no lowering", 2, 2.0), ("SIGSEGV", 1, 2.0)]


def test_page_lists_every_column_verdict_key_and_option():
    listed = set(re.findall(r"`([\w]+)`", PAGE))
    assert set(COLUMNS) <= listed
    assert set(columns.VERDICTS) <= listed
    assert {*plan._PLAN, *plan._GRID, *plan._MODEL} - {"name", "source"} <= listed | {"inputs"}
    assert {option for known in options._CHECKS.values() for option in known} <= listed


@pytest.mark.stored
def test_page_has_the_stored_figures_of_efficiency():
    stored = json.loads((HERE.parents[1] / "benchmarks" / "fleet.json").read_text())["compute"]
    cells = re.findall(r"^\| (\d+) \| ([\d.]+) s \| ([\d.]+) s \| (\d+) % \|$", PAGE, re.MULTILINE)
    assert [workers for workers, *_ in cells] == list(stored["workers"]) == ["1", "2", "4", "8"]
    for workers, *shown in cells:
        found = stored["workers"][workers]
        figures = [found["predicted"], found["seconds"], 100 * found["efficiency"]]
        assert shown == [f"{figures[0]:.1f}", f"{figures[1]:.1f}", f"{figures[2]:.0f}"]
        assert found["efficiency"] > 0.85
        assert abs(found["predicted"] / found["seconds"] - 1) < 0.08
