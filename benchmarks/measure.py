"""Runs one converter on one workload in a child process and reads its figures."""

import json
import os
import subprocess
from pathlib import Path

from benchmarks.environments import PEERS

CHILD = Path(__file__).parent / "child" / "run.py"
MINUTES = 15


def measured(converter, workload, repeats=3, runs=0):
    """The child's figures, or why there are none."""
    environment = PEERS[converter]
    problem = environment.make()
    if problem:
        return {"problem": f"not installed: {problem}"}
    command = [environment.python, CHILD, converter, workload, f"--repeats={repeats}"]
    try:
        result = subprocess.run(
            [*command, f"--runs={runs}"],
            capture_output=True,
            text=True,
            timeout=MINUTES * 60,
            cwd=CHILD.parent,  # not the project's folder, whose package would be imported
            env={
                **os.environ,
                "PYTHONWARNINGS": "ignore",
                "HF_HUB_OFFLINE": "1",
                # Programs of all converters are run in one environment.
                "COREAI_TORCH_BENCH_RUNNER": str(PEERS["ours"].python),
            },
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"took over {MINUTES} minutes"}
    for line in reversed(result.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
    return {"problem": lines[-1][:160]}


def import_seconds(statement, repeats=5):
    """The best time a fresh interpreter takes for a statement."""
    timed = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    command = [PEERS["ours"].python, "-c", timed]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHILD.parent)
        for _ in range(repeats)
    ]
    return min(float(run.stdout.split()[-1]) for run in runs)
