"""Faults on a cluster of three worker processes: every task is accounted for exactly once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from fleet_cluster import Cluster, free_port, wait_until
from lazy_import import lazy_import

from coreai_torch.errors import PlanError
from coreai_torch.fleet import (
    dask_engine,
    isolating,
    load_plan,
    parse_plan,
    read_rows,
    results,
    run,
)
from coreai_torch.fleet.dask_engine import DaskEngine
from coreai_torch.sandbox import processes

distributed = lazy_import("distributed")
pyarrow = lazy_import("pyarrow")
HERE = Path(__file__).parent
REAL = {"source": "fleet_models.py:net", "inputs": ["x=f32[2,64]"]}


def _calls(count, function="short", log=None, seconds=0.3, **more):
    config = {"seconds": seconds} | ({"log": str(log)} if log else {})
    models = [{"source": f"t{n}", "config": config} for n in range(count)]
    plan = {"models": models, "steps": [{"call": f"fleet_calls:{function}"}], **more}
    return parse_plan(plan, folder=HERE)


def _conversions(count, steps=("convert",), **more):
    models = [{**REAL, "name": f"net{n}", "grid": {"seeds": [n]}} for n in range(count)]
    return parse_plan({"models": models, "steps": list(steps), **more}, folder=HERE)


class _Background(threading.Thread):
    """A run in a thread, so that the test can cause a fault meanwhile."""

    def __init__(self, plan, folder, address):
        super().__init__(daemon=True)
        self.plan, self.folder, self.address = plan, folder, address
        self.summary = self.error = self.engine = None
        self.done = 0
        self.start()

    def run(self):
        def observe(summary):
            self.done = summary.done

        try:
            with DaskEngine(self.address, reconnect=120.0) as engine:
                self.engine = engine
                self.summary = run(self.plan, self.folder, engine=engine, observer=observe)
        except BaseException as error:
            self.error = error

    def finish(self, seconds=600.0):
        self.join(seconds)
        assert not self.is_alive(), f"{self.done} of {len(list(self.plan.tasks()))} done"
        if self.error is not None:
            raise self.error
        return self.summary


def _check_once(plan, folder, verdict="pass"):
    """Check that each task has exactly one row, here with one verdict."""
    rows = list(results.iterate(folder))
    assert Counter(row["id"] for row in rows) == Counter(task.id for task in plan.tasks())
    assert {row["verdict"] for row in rows} == {verdict}, Counter(row["cause"] for row in rows)


def _lines(log):
    text = Path(log).read_text() if Path(log).exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def test_worker_killed_during_a_task(tmp_path):
    log = tmp_path / "log"
    plan = _calls(9, log=log, seconds=0.8)
    with Cluster(tmp_path) as cluster:
        job = _Background(plan, tmp_path / "out", cluster.address)
        wait_until(lambda: len(_lines(log)) >= 4)
        cluster.workers[0].kill()
        assert job.finish().ok
    _check_once(plan, tmp_path / "out")
    started = Counter(line["id"] for line in _lines(log))
    assert 9 <= sum(started.values()) <= 11  # what ran on the killed worker ran again


@pytest.mark.slow
def test_worker_killed_during_a_conversion(tmp_path):
    plan = _conversions(8)
    with Cluster(tmp_path) as cluster:
        job = _Background(plan, tmp_path / "out", cluster.address)
        wait_until(lambda: job.done >= 1, 400)
        cluster.workers[0].kill()
        assert job.finish().ok
    _check_once(plan, tmp_path / "out")


@pytest.mark.slow
def test_scheduler_restarted(tmp_path):
    plan = _conversions(8)
    with Cluster(tmp_path) as cluster:
        job = _Background(plan, tmp_path / "out", cluster.address)
        wait_until(lambda: job.done >= 2, 400)
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        before = job.done
        time.sleep(2)
        cluster.start_scheduler()
        for _ in range(3):  # workers end when they lose their scheduler
            cluster.start_worker()
        assert job.finish().ok
        assert before < 8
    _check_once(plan, tmp_path / "out")


@pytest.mark.slow
def test_disk_full_on_one_worker(tmp_path):
    # A tmpfs of one megabyte in a separate mount namespace, if the system allows that.
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=64k none {disk} && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"]).returncode:
        prefix = ["sh", "-c", 'ulimit -f 64; exec "$@"', "sh"]
    plan = _conversions(9)
    with Cluster(tmp_path, workers=2) as cluster:
        cluster.start_worker(prefix, **{isolating.SCRATCH: str(disk)})
        _Background(plan, tmp_path / "out", cluster.address).finish()
    _check_once(plan, tmp_path / "out")
    attempts = [row["attempt"] for row in read_rows(tmp_path / "out")]
    assert max(attempts) == 2  # some tasks met the full disk first


@pytest.mark.slow
def test_leaking_crashing_and_hanging_tasks_do_not_end_a_worker(tmp_path):
    names = [f"{kind}{n}" for kind in ("leak", "crash", "hang", "exit", "raise") for n in range(3)]
    plan = {"models": names, "steps": [{"call": "fleet_calls:by_name"}]}
    plan = parse_plan({**plan, "limits": {"memory": 0.3, "seconds": 5}}, folder=HERE)
    with Cluster(tmp_path) as cluster:
        summary = _Background(plan, tmp_path / "out", cluster.address).finish()
        assert [worker.poll() for worker in cluster.workers] == [None] * 3
    assert dict(summary.verdicts) == {"memory": 3, "crash": 6, "timeout": 3, "error": 3}
    rows = Counter(row["id"] for row in results.iterate(tmp_path / "out"))
    assert rows == Counter(names)
    assert {row["attempt"] for row in read_rows(tmp_path / "out")} == {1}


@pytest.mark.slow
def test_model_that_leaks_memory_does_not_end_a_worker(tmp_path):
    models = [REAL, {"source": "fleet_models.py:leaking"}]
    plan = {"models": models, "steps": ["convert"], "grid": {"seeds": [0, 1, 2]}}
    plan = parse_plan({**plan, "limits": {"memory": 1.5}}, folder=HERE)
    with Cluster(tmp_path) as cluster:
        summary = _Background(plan, tmp_path / "out", cluster.address).finish()
        assert [worker.poll() for worker in cluster.workers] == [None] * 3
    assert dict(summary.verdicts) == {"pass": 3, "memory": 3}
    rows = list(results.iterate(tmp_path / "out"))
    assert Counter(row["id"] for row in rows) == Counter(task.id for task in plan.tasks())
    assert {(row["step"], row["cause"]) for row in rows if row["verdict"] == "memory"} == {
        ("load", "memory limit")
    }


@pytest.mark.skipif(sys.platform != "linux", reason="uses PR_SET_PDEATHSIG")
@pytest.mark.parametrize(
    "options", [(), pytest.param(("--workers", "2"), marks=pytest.mark.slow)], ids=["one", "two"]
)
def test_all_processes_end_with_the_command(tmp_path, options):
    log = tmp_path / "log"
    models = [{"source": "hang", "config": {"log": str(log)}}]
    plan = {"models": models, "steps": [{"call": "fleet_calls:by_name"}]}
    (tmp_path / "fleet_calls.py").write_text((HERE / "fleet_calls.py").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, "-m", "coreai_torch.cli", "fleet", "run", "plan.json", "-o", "out"]
    started = subprocess.Popen([*command, *options], cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(_lines(log)) == 1)
    children = processes.descendants(started.pid)
    assert _lines(log)[0]["pid"] in children
    started.kill()
    started.wait()
    wait_until(lambda: not any(_is_running(pid) for pid in children))
    assert not _is_locked(tmp_path / "out")


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--workers", "2"), marks=pytest.mark.slow)], ids=["one", "two"]
)
def test_command_that_is_interrupted_continues(tmp_path, options):
    log = tmp_path / "log"
    config = {"log": str(log), "seconds": 0.5}
    models = [{"source": f"t{number}", "config": config} for number in range(8)]
    plan = {"models": models, "steps": [{"call": "fleet_calls:short"}]}
    (tmp_path / "fleet_calls.py").write_text((HERE / "fleet_calls.py").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, "-m", "coreai_torch.cli", "fleet", "run", "plan.json", "-o", "out"]
    command += options
    # A shell starts background jobs with SIGINT ignored, and children inherit that.
    first = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: len(_lines(log)) >= 3 and _count(tmp_path / "out") >= 2)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    _, printed = first.communicate()
    assert first.returncode == 130
    assert printed.endswith("error: interrupted; run the same command again to continue\n")
    assert "Traceback" not in printed
    done = len(read_rows(tmp_path / "out"))
    assert 2 <= done < 8
    second = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, check=True)
    answer = json.loads(second.stdout)
    assert (answer["skipped"], answer["verdicts"]) == (done, {"pass": 8 - done})


def _is_running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
def test_client_killed_and_started_again(tmp_path):
    plan = {"models": [REAL], "steps": ["convert"], "grid": {"seeds": list(range(10))}}
    (tmp_path / "fleet_models.py").write_text((HERE / "fleet_models.py").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, "-m", "coreai_torch.cli", "fleet", "run", "plan.json", "-o", "out"]
    with Cluster(tmp_path) as cluster:
        command += ["--scheduler", cluster.address, "--json"]
        first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        wait_until(lambda: (tmp_path / "out" / "parts").is_dir() and _count(tmp_path / "out") >= 2)
        first.kill()
        first.wait()
        wait_until(lambda: not _is_locked(tmp_path / "out"))
        done = _count(tmp_path / "out")
        assert 2 <= done < 10
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    answer = json.loads(second.stdout)
    assert (answer["skipped"], answer["verdicts"]) == (done, {"pass": 10 - done})
    _check_once(load_plan(tmp_path / "plan.json"), tmp_path / "out")


def _count(folder):
    return len(list(results.iterate(folder)))


def _is_locked(folder):
    import fcntl

    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


@pytest.mark.slow
def test_large_tasks_do_not_meet_on_one_worker(tmp_path):
    # Each of the workers has two threads and 8 GB; a task needs 5 GB.
    log = tmp_path / "log"
    models = [{"source": f"t{n}", "config": {"log": str(log), "seconds": 1}} for n in range(9)]
    steps = [{"call": "fleet_calls:short"}]
    plan = parse_plan({"models": models, "steps": steps, "limits": {"memory": 5}}, folder=HERE)
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=2, resources={"memory": 8}, dashboard_address=":0"
    ) as cluster:
        job = _Background(plan, tmp_path / "out", cluster.scheduler_address)
        assert job.finish().ok
    _check_once(plan, tmp_path / "out")
    workers = Counter(row["worker"] for row in read_rows(tmp_path / "out"))
    assert len(workers) == 3
    starts = Counter((row["worker"], row["started"]) for row in read_rows(tmp_path / "out"))
    assert set(starts.values()) == {1}  # each takes a second: no two began in the same one


def test_scheduler_that_does_not_answer_is_reported_soon(monkeypatch):
    assert distributed.__name__
    monkeypatch.setattr(dask_engine, "_CONNECT", 0.5)
    began = time.monotonic()
    with (
        pytest.raises(PlanError, match="no Dask scheduler answers at tcp://127"),
        DaskEngine(f"tcp://127.0.0.1:{free_port()}"),
    ):
        pass
    assert time.monotonic() - began < 60


def test_tasks_wait_for_the_first_worker_and_count_its_memory(tmp_path):
    # Without a wait the tasks would be submitted before it is known that workers count memory.
    plan = _calls(2, seconds=0, limits={"memory": 5})
    with Cluster(tmp_path, workers=0) as cluster:
        job = _Background(plan, tmp_path / "out", cluster.address)
        time.sleep(3)
        assert job.is_alive()
        cluster.memory = 4
        cluster.start_worker()
        summary = job.finish()
    assert dict(summary.verdicts) == {"lost": 2}
    assert {row["cause"] for row in read_rows(tmp_path / "out")} == {"no worker has enough memory"}


def test_worker_that_cannot_import_the_package_gets_no_task(tmp_path):
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("import sys\nsys.modules['coreai_torch'] = None\n")
    plan = _calls(3, seconds=0)
    with Cluster(tmp_path, workers=0) as cluster:
        worker = cluster.start_worker(PYTHONPATH=str(tmp_path))

        def run_with_another():
            job = _Background(plan, tmp_path / "out", cluster.address)
            wait_until(lambda: job.engine is not None and job.engine._checked)
            cluster.start_worker()
            return job.finish()

        with pytest.warns(UserWarning, match="gets no task, because it cannot import"):
            assert run_with_another().ok
        assert worker.poll() is None
    _check_once(plan, tmp_path / "out")


def test_task_that_fits_on_no_worker_is_a_result(tmp_path):
    plan = _calls(2, seconds=0, limits={"memory": 100})
    with DaskEngine(workers=1, memory=2) as engine:
        summary = run(plan, tmp_path / "out", engine=engine)
        assert engine.dashboard.startswith("http://")
    assert dict(summary.verdicts) == {"lost": 2}  # it runs on a larger worker next time
    assert {row["cause"] for row in read_rows(tmp_path / "out")} == {"no worker has enough memory"}
