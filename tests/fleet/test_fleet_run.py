"""A run on one machine: results, resuming, retrying, and real conversions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lazy_import import lazy_import

from coreai_torch.cli.fleet_worker import load
from coreai_torch.fleet import parse_plan, read_rows, run
from coreai_torch.fleet.content import Hasher
from coreai_torch.fleet.local_engine import LocalEngine
from coreai_torch.fleet.steps import Work, failure

pyarrow = lazy_import("pyarrow")
HERE = Path(__file__).parent


def _plan(names, function="by_name", **more):
    models = [{"source": name} for name in names]
    return parse_plan(
        {"models": models, "steps": [{"call": f"fleet_calls:{function}"}], **more}, folder=HERE
    )


def _verdicts(folder):
    return {row["id"]: row["verdict"] for row in read_rows(folder)}


def test_finished_tasks_are_skipped_and_failed_ones_retried_on_request(tmp_path):
    assert pyarrow.__name__
    first = run(_plan(["raise", "exit"]), tmp_path)
    assert (first.done, first.failed, first.skipped, first.ok) == (2, 2, 0, False)
    second = run(_plan(["raise", "exit", "raise1"]), tmp_path)
    assert (second.done, second.skipped, second.skipped_failed) == (1, 2, 2)
    assert not run(_plan(["raise", "exit"]), tmp_path).ok  # skipped, but they did not pass
    third = run(_plan(["raise", "exit", "raise1"]), tmp_path, retry_failed=True)
    assert (third.done, third.skipped) == (3, 0)
    assert _verdicts(tmp_path) == {"raise": "error", "exit": "crash", "raise1": "error"}


def test_changed_task_runs_again(tmp_path):
    models = [{"source": "a", "config": {"seconds": 0.0}}]
    for expected in (1, 0):
        plan = parse_plan({"models": models, "steps": [{"call": "fleet_calls:short"}]}, folder=HERE)
        assert run(plan, tmp_path).done == expected
    models[0]["config"]["seconds"] = 0.01
    plan = parse_plan({"models": models, "steps": [{"call": "fleet_calls:short"}]}, folder=HERE)
    assert run(plan, tmp_path).done == 1
    assert len(read_rows(tmp_path)) == 1


def test_interrupted_run_continues(tmp_path):
    plan = _plan([f"t{n}" for n in range(6)], "short")

    def interrupt(summary):
        if summary.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path, observer=interrupt)
    summary = run(plan, tmp_path)
    assert (summary.done, summary.skipped) == (3, 3)
    assert len(read_rows(tmp_path)) == 6


def test_lost_task_is_tried_again_at_once_and_in_the_next_run(tmp_path):
    attempts = []

    def function(task, attempt=1, worker=""):
        attempts.append((task["id"], attempt))
        verdict = "lost" if len(attempts) < 4 else "pass"
        return {"id": task["id"], "key": task["key"], "verdict": verdict}

    with LocalEngine() as engine:
        assert not run(_plan(["a"], "short"), tmp_path, engine=engine, function=function).ok
        assert run(_plan(["a"], "short"), tmp_path, engine=engine, function=function).ok
    assert attempts == [("a", 1), ("a", 2), ("a", 1), ("a", 2)]


def test_wrong_results_of_a_function_of_the_plan_become_rows(tmp_path):
    assert pyarrow.__name__
    run(_plan(["nothing", "verdict", "text", "id"], "returns"), tmp_path)
    rows = {row["id"]: row for row in read_rows(tmp_path)}
    assert "fleet_calls:returns returned NoneType" in rows["nothing"]["cause"]
    assert "returned the verdict 'ok'" in rows["verdict"]["cause"]
    assert (rows["text"]["verdict"], rows["text"]["ops"]) == ("pass", None)
    assert {"ops": "many", "path": "a"}.items() <= json.loads(rows["text"]["details"]).items()
    assert json.loads(rows["id"]["details"])["ops"] == 1 << 70
    assert run(_plan(["text", "id"], "returns"), tmp_path).skipped == 2


def test_foreign_error_has_its_place_and_its_causes():
    try:
        try:
            int("x")
        except ValueError as inner:
            raise ImportError("no module") from inner
    except ImportError as error:
        message = failure(error)["message"]
    first, place, cause = message.splitlines()
    assert first == "ImportError: no module"
    assert f'File "{__file__}", line' in place
    assert cause.startswith("  cause ValueError: invalid literal")


def _work(monkeypatch, tmp_path, steps, grid=None, source="fleet_models.py:net"):
    """Run the steps of one task in this process."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(HERE)
    model = {"name": "net", "source": source, "inputs": ["x=f32[2,64]"]}
    plan = parse_plan({"models": [model], "steps": steps, "grid": grid or {}}, folder=HERE)
    task = Hasher().keyed(next(plan.tasks()))
    reported = []
    result = Work(task, load, lambda part: reported.append(dict(part))).run()
    return result, reported


def test_conversion_measures_every_step(monkeypatch, tmp_path):
    steps = ["compress", "convert", "lint"]
    grid = {"scheme": ["int8"], "seeds": [1]}
    result, reported = _work(monkeypatch, tmp_path, steps, grid)
    assert result["verdict"] == "pass", result
    assert {"load_s", "compress_s", "export_s", "convert_s", "lint_s"} <= set(result)
    assert result["ops"] > 0
    assert result["parameters"] == 64 * 32 + 32 + 32 * 4 + 4
    assert 0 < result["file_bytes"] < 100_000
    assert len(result["file_hash"]) == 32
    assert next(r["step"] for r in reported if "step" in r) == "load"


def test_export_alone_counts_ops(monkeypatch, tmp_path):
    result, _ = _work(monkeypatch, tmp_path, ["export"])
    assert (result["verdict"], result["ops"]) == ("pass", 3)
    assert "convert_s" not in result


def test_error_of_a_model_has_step_and_code(monkeypatch, tmp_path):
    result, _ = _work(monkeypatch, tmp_path, ["convert"], source="fleet_models.py:broken")
    assert (result["verdict"], result["step"]) == ("error", "load")
    assert result["error_code"] == "CAT112"
    assert "the weights are missing" in result["cause"]


def test_seed_changes_the_weights(monkeypatch, tmp_path):
    monkeypatch.chdir(HERE)
    weights = []
    for seed in (0, 0, 1):
        model = {"source": "fleet_models.py:net", "inputs": ["x=f32[2,64]"]}
        plan = {"models": [model], "steps": ["convert"], "grid": {"seeds": [seed]}}
        loaded = load(next(parse_plan(plan, folder=HERE).tasks()))
        weights.append(loaded.model_or_exported.head.weight)
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])


@pytest.mark.slow
def test_plan_is_converted_and_verified_in_child_processes(tmp_path):
    plan = parse_plan(
        {
            "models": [
                {"source": "fleet_models.py:net", "inputs": ["x=f32[{batch},64]"]},
                "fleet_models.py:broken",
            ],
            "grid": {"sizes": [{"batch": 1}, {"batch": 3}]},
            "steps": ["convert", "verify", {"bench": {"runs": 2, "warmup": 0}}],
            "keep": True,
        },
        folder=HERE,
    )
    summary = run(plan, tmp_path)
    assert dict(summary.verdicts) == {"pass": 2, "error": 1}
    rows = {row["id"]: row for row in read_rows(tmp_path)}
    row = rows["fleet_models.py:net[batch=3]"]
    assert 0 <= row["max_error"] < 1e-4
    assert row["verify_s"] > 0
    assert row["call_ms"] > 0
    assert row["peak_mb"] > 100
    assert len(list((tmp_path / "assets").glob("*.aimodel"))) == 2
