"""Measure fleet runs: `python -m benchmarks.fleet [--tasks 100000]` writes benchmarks/fleet.json.

Short synthetic tasks show the costs of the scheduler and of the client; tasks that compute or
convert a model show how the rate grows with the number of workers. Set OMP_NUM_THREADS=1 for
those, and use a machine with more cores than workers:

    OMP_NUM_THREADS=1 python -m benchmarks.fleet --part compute convert --workers 1 2 4 8
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from coreai_torch.fleet import Plan, parse_plan, read_rows, run
from coreai_torch.fleet.columns import row
from coreai_torch.fleet.dask_engine import DaskEngine
from coreai_torch.fleet.local_engine import LocalEngine
from coreai_torch.fleet.plan import Grid, Model
from tests import provenance

STORED = Path(__file__).parent / "fleet.json"
HERE = Path(__file__).parents[1]
AHEAD = 1000  # tasks at the scheduler, because the synthetic ones take no time


def short(task, attempt=1, worker=""):
    """Return a row without any work, in the process of the worker."""
    return row(task, {"verdict": "pass", "seconds": 0.0, "worker": worker, "attempt": attempt})


def compute(task):
    """Use one core for the given seconds of processor time."""
    end = time.process_time() + task.config["seconds"]
    while time.process_time() < end:
        pass
    return {}


def sleep(task):
    """Wait: the work of another machine, as far as this one is concerned."""
    time.sleep(task.config["seconds"])
    return {}


def synthetic(count):
    model = Model("t", "t", grid=Grid(seeds=tuple(range(count))))
    return Plan("synthetic", (model,), {}, folder=str(HERE), call="benchmarks.fleet:none")


def plan_of(function, tasks, seconds):
    """Return a plan of tasks that run in child processes."""
    models = tuple(Model(f"t{n}", f"t{n}", config={"seconds": seconds}) for n in range(tasks))
    call = f"benchmarks.fleet:{function}"
    return Plan("seconds", models, {}, folder=str(HERE), call=call, preload=("benchmarks.fleet",))


def scale(count, workers):
    """Measure the processor time of the scheduler for each task, and the memory of the client."""
    memory, client = [], psutil.Process()

    def observe(summary):
        if summary.done % (count // 20) == 0:
            memory.append(round(client.memory_info().rss / 1e6, 1))
            print(summary.done, memory[-1], flush=True)

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port = str(9100 + os.getpid() % 800)
        scheduler = _started(stack, "scheduler", "--host", "127.0.0.1", "--port", port)
        address = f"tcp://127.0.0.1:{port}"
        options = ["--nthreads", "1", "--no-nanny", "--local-directory", folder]
        for _ in range(workers):
            _started(stack, "worker", address, *options)
        engine = stack.enter_context(DaskEngine(address, ahead=AHEAD))
        engine.client.wait_for_workers(workers)
        before, client_before, began = _cpu(scheduler), _cpu(client), time.monotonic()
        plan = synthetic(count)
        summary = run(plan, Path(folder) / "out", engine=engine, function=short, observer=observe)
        seconds = time.monotonic() - began
        used, client_used = _cpu(scheduler) - before, _cpu(client) - client_before
    assert summary.done == count
    return {
        "tasks": count,
        "workers": workers,
        "ahead": AHEAD,
        "seconds": round(seconds, 1),
        "ms_per_task": round(1e3 * seconds / count, 3),
        "scheduler_cpu_ms_per_task": round(1e3 * used / count, 3),
        "client_cpu_ms_per_task": round(1e3 * client_used / count, 3),
        "client_mb": memory,
    }


def _started(stack, *arguments):
    """Start a process of Dask that ends with the measurement."""
    command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return psutil.Process(process.pid)


def _cpu(process):
    times = process.cpu_times()
    return times.user + times.system


def block():
    """Return an encoder whose conversion and verification take some seconds."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), (
        torch.randn(1, 16, 128),
    )


def conversions(tasks):
    """Return a plan that converts and verifies a model with different random weights."""
    model = {"source": "benchmarks.fleet:block", "grid": {"seeds": list(range(tasks))}}
    return parse_plan({"models": [model], "steps": ["convert", "verify"]}, folder=HERE)


def efficiency(plan, warm, counts, seconds=None):
    """Return the time of a plan with different numbers of workers, and what the model predicts.

    `seconds` is the work of one task; by default it is measured with the first number of workers.
    `warm` makes the plan that starts each worker.
    """
    tasks, found = len(list(plan.tasks())), {}
    for workers in counts:
        with tempfile.TemporaryDirectory() as folder, DaskEngine(workers=workers) as engine:
            engine.client.wait_for_workers(workers)
            run(warm(2 * workers), Path(folder) / "warm", engine=engine)
            began = time.monotonic()
            assert run(plan, Path(folder) / "out", engine=engine).ok
            wall = time.monotonic() - began
            times = [found["seconds"] for found in read_rows(Path(folder) / "out")]
        seconds = seconds or sum(times) / tasks
        found[workers] = {
            "seconds": round(wall, 2),
            "efficiency": round(tasks * seconds / (wall * workers), 3),
            "predicted": round(sum(times) / workers + max(times) / 2, 2),  # with the guard
            "seconds_per_task": round(sum(times) / tasks, 3),
        }
        print(workers, json.dumps(found[workers]), flush=True)
    return {"tasks": tasks, "seconds_per_task": round(seconds, 3), "workers": found}


def overhead(tasks=200):
    """Return the milliseconds that a guard needs for a task without work: fork, watch, report."""
    plan = plan_of("sleep", tasks, 0)
    with tempfile.TemporaryDirectory() as folder, LocalEngine() as engine:
        run(plan_of("sleep", 1, 0), Path(folder) / "warm", engine=engine)
        began, before = time.monotonic(), _descendants_cpu()
        run(plan, Path(folder) / "out", engine=engine)
        wall, used = time.monotonic() - began, _descendants_cpu() - before
    return {
        "wall_ms_per_guarded_task": round(1e3 * wall / tasks, 1),
        "cpu_ms_per_guarded_task": round(1e3 * used / tasks, 1),
    }


def _descendants_cpu():
    """Return the processor time of the guard and of its children that ended."""
    found = 0.0
    for guard in psutil.Process().children():
        times = guard.cpu_times()
        found += times.user + times.system + times.children_user + times.children_system
    return found


def main():
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument(
        "--workers", nargs="+", type=int, default=[n for n in (1, 2, 4, 8) if n <= cores]
    )
    parser.add_argument("--out", type=Path, default=STORED)
    given = parser.parse_args()
    stored = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in given.part:
        load = round(os.getloadavg()[0], 1)
        stored[name] = {**PARTS[name](given), "cores": cores, "load_before": load}
        stored[name]["measured"] = provenance.current("dask", "distributed", "pyarrow")
        print(name, json.dumps(stored[name]), flush=True)
        given.out.write_text(json.dumps(stored, indent=1) + "\n")


PARTS = {
    "overhead": lambda given: overhead(),
    "scale": lambda given: scale(given.tasks, 2),
    "compute": lambda given: efficiency(
        plan_of("compute", 32, 2.0), lambda n: plan_of("sleep", n, 0.5), given.workers, 2.0
    ),
    "convert": lambda given: efficiency(conversions(24), conversions, given.workers),
}

if __name__ == "__main__":
    main()
