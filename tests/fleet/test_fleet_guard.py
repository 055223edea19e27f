"""A task runs in a fresh child process: whatever happens to it becomes a row with a reason."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coreai_torch.fleet import guard, isolating, parse_plan
from coreai_torch.fleet.content import Hasher

HERE = Path(__file__).parent


def tasks_of(names, function, limits=None, **config):
    """Return tasks that call a function of fleet_calls.py, with their content hashes."""
    models = [{"source": name, "config": config} for name in names]
    plan = {
        "models": models,
        "steps": [{"call": f"fleet_calls:{function}"}],
        "limits": limits or {},
    }
    hasher = Hasher()
    return [hasher.keyed(task) for task in parse_plan(plan, folder=HERE).tasks()]


@pytest.fixture(scope="module", params=["fork", "spawn"])
def run(request):
    before = os.environ.get(guard.START)
    os.environ[guard.START] = request.param

    def run(name, function="by_name", limits=None, **config):
        (task,) = tasks_of([name], function, limits, **config)
        return isolating.run_task(task.as_dict())

    isolating.close_guards()
    yield run
    isolating.close_guards()
    del os.environ[guard.START]
    if before is not None:
        os.environ[guard.START] = before


def test_result_has_columns_and_details(run):
    row = run("a", "short")
    assert (row["verdict"], row["ops"], row["step"], row["id"]) == ("pass", 1, "", "a")
    assert json.loads(row["details"])["note"] == "done"
    assert row["seconds"] > 0
    assert row["python"].startswith("3.")


@pytest.mark.parametrize(
    ("name", "limits", "verdict", "cause"),
    [
        ("crash", {}, "crash", "SIGABRT"),
        ("exit", {}, "crash", "exit code 7"),
        ("raise", {}, "error", "ValueError: the weights are missing"),
        ("killed", {}, "memory", "out of memory"),
        ("hang", {"seconds": 1.0}, "timeout", "time limit"),
        ("leak", {"memory": 0.3}, "memory", "memory limit"),
    ],
)
def test_every_end_of_a_child_is_a_result(run, name, limits, verdict, cause):
    row = run(name, limits=limits)
    assert (row["verdict"], row["cause"]) == (verdict, cause)
    # On a busy machine a new interpreter may reach the time limit before the call.
    assert row["step"] in (("call", "") if name == "hang" else ("call",))
    assert row["message"]


def test_message_of_a_crash_has_the_last_lines_of_stderr(run):
    assert "assertion failed in native code" in run("crash")["message"]


def _ended(pid):
    """Return whether a process ends within half a minute."""
    for _ in range(300):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
def test_orphans_of_a_child_are_killed(run, tmp_path):
    assert run("children", log=str(tmp_path / "log"))["verdict"] == "pass"
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (orphan,) = [line["pid"] for line in lines if line.get("orphan")]
    assert _ended(orphan)


def test_child_ends_with_its_worker(tmp_path):
    (task,) = tasks_of(["hang"], "by_name", log=str(tmp_path / "log"))
    code = (
        "import json, sys; from coreai_torch.fleet.isolating import run_task;"
        "run_task(json.loads(sys.argv[1]))"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, json.dumps(task.as_dict())])
    deadline = time.monotonic() + 60
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child = json.loads((tmp_path / "log").read_text())["pid"]
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert _ended(child)


def test_full_disk_is_a_lost_task_with_its_cause(monkeypatch, tmp_path):
    # A limit on the size of files, which the guard inherits, raises the same kind of error.
    monkeypatch.setenv(isolating.SCRATCH, str(tmp_path))
    isolating.close_guards()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, before[1]))
    try:
        (task,) = tasks_of(["a"], "write_file")
        row = isolating.run_task(task.as_dict())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        isolating.close_guards()
    assert (row["verdict"], row["cause"]) == ("lost", "the disk is full")
    assert list(tmp_path.iterdir()) == []


def test_missing_scratch_folder_is_a_lost_task(monkeypatch, tmp_path):
    monkeypatch.setenv(isolating.SCRATCH, str(tmp_path / "missing"))
    (task,) = tasks_of(["a"], "short")
    row = isolating.run_task(task.as_dict())
    assert row["verdict"] == "lost"
    assert "missing" in row["message"]


def test_worker_with_another_version_is_rejected():
    (task,) = tasks_of(["a"], "short")
    row = isolating.run_task({**task.as_dict(), "code": "of another version"})
    assert row["verdict"] == "error"
    assert "another version of coreai_torch" in row["cause"]


def test_reported_values_are_kept_if_the_child_crashes(run):
    row = run("a", "report_and_crash")
    assert (row["verdict"], row["cause"], row["ops"]) == ("crash", "SIGABRT", 3)
    assert json.loads(row["details"])["judged"] == ["first", "second"]


def _interpreter(tmp_path, script):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    (task,) = tasks_of(["a"], "environment")
    return isolating.run_task({**task.as_dict(), "python": str(python)})


def test_task_runs_with_the_python_of_its_environment(tmp_path):
    row = _interpreter(tmp_path, f'FLEET_TEST=1 exec {sys.executable} "$@"')
    assert row["verdict"] == "pass", row["message"]
    assert json.loads(row["details"])["variable"] == "1"
    isolating.close_guards()


def test_environment_without_the_package_is_a_result_with_a_hint(tmp_path):
    row = _interpreter(tmp_path, "exit 1")
    assert row["verdict"] == "crash"
    assert "can import coreai_torch" in row["message"]


def test_interpreter_that_cannot_start_is_an_error():
    (task,) = tasks_of(["a"], "environment")
    row = isolating.run_task({**task.as_dict(), "python": "/missing/python"})
    assert (row["verdict"], row["cause"]) == ("error", "cannot start /missing/python")


def test_guard_that_is_killed_is_a_result_and_is_replaced(tmp_path):
    isolating.close_guards()
    (task,) = tasks_of(["a"], "short")
    assert isolating.run_task(task.as_dict())["verdict"] == "pass"
    ((started,),) = [guards for guards in isolating._idle.values() if guards]
    os.kill(started.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert isolating.run_task(task.as_dict())["verdict"] == "pass"
    isolating.close_guards()
