"""Run a task through a guard process; the functions here run in a worker of the engine."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from .columns import CRASH, ERROR, row

PROGRAM = "coreai_torch.cli.fleet_worker"  # the entry points are the layer above this one
SCRATCH = "COREAI_TORCH_FLEET_SCRATCH"  # the folder for temporary files of tasks

_Kind = tuple[str, tuple[str, ...]]  # the interpreter and the arguments of a guard
_idle: dict[_Kind, list[Guard]] = {}
_lock = threading.Lock()


class Guard:
    """A guard process, which runs one task at a time."""

    def __init__(self, python: str, arguments: tuple[str, ...]) -> None:
        self._python = python
        # A thread of a numeric library that exists when the guard forks would be lost in the child.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [python, "-m", PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def run(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a task; the guard itself ends only if it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"task": dict(task), "scratch": os.environ.get(SCRATCH, "")}
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            message = f"the guard process ended with code {code}"
            if code == 1:  # an error while it started
                message += f"; check that {self._python} can import coreai_torch"
            return {"verdict": CRASH, "cause": "the guard ended", "message": message}
        return dict(json.loads(line))

    @property
    def alive(self) -> bool:
        """Whether it can run another task."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the guard, and the task that it runs."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()


def run_task(task: Mapping[str, Any], attempt: int = 1, worker: str = "") -> dict[str, Any]:
    """Run a task in a fresh child process and return its row, whatever happens to the child."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    arguments = ("--folder", task["folder"], *task["preload"])
    kind = (task["python"] or sys.executable, (*(() if task["call"] else ("--torch",)), *arguments))
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
    if guard is not None and not guard.alive:
        guard.close()
        guard = None
    guard = guard or Guard(*kind)
    result = guard.run(task)
    if guard.alive:
        with _lock:
            _idle[kind].append(guard)
    else:
        guard.close()
    return result


@atexit.register
def close_guards() -> None:
    """End the idle guards of this process."""
    with _lock:
        for guards in _idle.values():
            while guards:
                guards.pop().close()
