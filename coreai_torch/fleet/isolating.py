"""Run a task through a guard process; the functions here run in a worker of the engine."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..sandbox.child import Child, Ended
from .columns import CRASH, ERROR, row

PROGRAM = "coreai_torch.cli.fleet_worker:serve"  # in the layer of entry points, above this one
SCRATCH = "COREAI_TORCH_FLEET_SCRATCH"  # the folder for temporary files of tasks

_Kind = tuple[str, str, bool, tuple[str, ...]]  # the interpreter and the arguments of a guard
_idle: dict[_Kind, list[Child]] = {}
_lock = threading.Lock()


def run_task(task: Mapping[str, Any], attempt: int = 1, worker: str = "") -> dict[str, Any]:
    """Run a task in a fresh child process and return its row, whatever happens to the child."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    kind = (task["python"], task["folder"], not task["call"], tuple(task["preload"]))
    try:
        result = _run_guarded(kind, task)
    except OSError as error:  # of the interpreter
        result = {"verdict": ERROR, "cause": f"cannot start {kind[0]}", "message": str(error)}
    place = {"host": socket.gethostname(), "worker": worker, "attempt": attempt}
    return row(task, {**result, **place, "started": started})


def _run_guarded(kind: _Kind, task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task through an idle guard of that kind, or a new one."""
    with _lock:
        waiting = _idle.setdefault(kind, [])
        guard = waiting.pop() if waiting else None
    if guard is None or guard.ended:
        if guard is not None:
            guard.close()
        guard = _start(kind)
    try:
        result: dict[str, Any] = guard.ask((dict(task), os.environ.get(SCRATCH, "")))
    except Ended as ended:  # the guard itself ends only if it is killed
        guard.close()
        message = f"the guard process {ended.why}"
        if ended.code == 1:  # an error while it started
            message += f"; check that {kind[0] or sys.executable} can import coreai_torch"
        return {"verdict": CRASH, "cause": "the guard ended", "message": message}
    with _lock:
        _idle[kind].append(guard)
    return result


def _start(kind: _Kind) -> Child:
    python, *arguments = kind
    # A thread of a numeric library that exists when the guard forks would be lost in the child.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return Child.spawn(PROGRAM, *arguments, python=python, environment=environment)


@atexit.register
def close_guards() -> None:
    """End the idle guards of this process."""
    with _lock:
        for guards in _idle.values():
            while guards:
                guards.pop().close()
