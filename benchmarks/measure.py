"""Run one converter on one workload in a child process and read its figures."""

import json
import os
import subprocess
from pathlib import Path

from benchmarks.child.stages import Stages
from benchmarks.environments import PEERS

CHILD = Path(__file__).parent / "child" / "run.py"
LATENCY = CHILD.parent / "latency.py"
MINUTES = 15


def _without_other_packages():
    """Return the environment without PYTHONPATH, which would replace `coreai_torch` in peers."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**inherited, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}


def measured(converter, workload, repeats=3, keep=None):
    """Return the figures of the child, or its error."""
    environment = PEERS[converter]
    problem = environment.make()
    if problem:
        return {"problem": f"not installed: {problem}"}
    command = [environment.python, CHILD, converter, workload, f"--repeats={repeats}"]
    command += [f"--keep={keep}"] if keep else []
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=MINUTES * 60,
            cwd=CHILD.parent,  # in the project's folder its package would be imported
            env=_without_other_packages(),
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"took over {MINUTES} minutes"}
    for line in reversed(result.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
    return {"problem": lines[-1][:160]}


def latencies(assets, processes, runs):
    """Return the best times to load and run each kept asset, all in one environment.

    The assets take turns, each time in a new process: the placement of memory changes the speed of
    a program by 15 %, and other load on the machine by more.
    """
    found = {name: Stages() for name in assets}
    for _ in range(processes):
        for name, folder in assets.items():
            command = [PEERS["ours"].python, LATENCY, folder / "m.aimodel", folder / "inputs.pt"]
            result = subprocess.run(
                [*command, str(runs)], capture_output=True, text=True, check=True, cwd=CHILD.parent
            )
            found[name].keep(**json.loads(result.stdout.splitlines()[-1]))
    return found


def import_seconds(statement, repeats=5):
    """Return the best time that a fresh interpreter needs for a statement."""
    timed = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    command = [PEERS["ours"].python, "-c", timed]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHILD.parent)
        for _ in range(repeats)
    ]
    return min(float(run.stdout.split()[-1]) for run in runs)
