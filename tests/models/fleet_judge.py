"""Functions that the fleet calls in a child process to judge a model of the zoo."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # zoo.judge imports `runtime`


def judge(task: Any) -> dict[str, Any]:
    """Return the columns of a model's verdict, and the verdict itself as details."""
    from zoo.judge import judge as work

    if target := os.environ.get("REWRITES"):
        import rewrite_everything

        rewrite_everything.make_default(target)
    return _columns(work(task.model, task.config["dtype"]))


def judge_within_limits(task: Any) -> dict[str, Any]:
    """Judge a model at its published size; the system stops the process at the limits."""
    from zoo.judge import judge_within_limits as work

    return _columns(work(task.model, task.config["dtype"]))


def abort(task: Any) -> dict[str, Any]:
    """Crash, for a test."""
    os.abort()


def sleep(task: Any) -> dict[str, Any]:
    """Hang, for a test."""
    time.sleep(60)
    return {}


def _columns(verdict: Any) -> dict[str, Any]:
    first = next(iter(verdict.failure.splitlines()), "")
    return {
        "verdict": "fail" if verdict.failure else "pass",
        "cause": first[:200],
        "message": verdict.trace,
        "max_error": verdict.error if math.isfinite(verdict.error) else None,
        "parameters": verdict.parameters,
        "ops": verdict.operations,
        "judged": dataclasses.asdict(verdict),
    }
