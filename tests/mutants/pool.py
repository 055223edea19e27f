"""Run units in child processes, each restarted if it crashes or hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tests.worker_threads import run_jobs

PATIENCE = 420.0  # seconds that a unit may take

Result = tuple[str, list[dict[str, Any]]]  # the name of a unit, and its outcomes


class Child:
    """A process that runs units one after the other; started on first use."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._process: subprocess.Popen[str] | None = None

    def run(self, name: str) -> list[dict[str, Any]]:
        """Return the outcomes of a unit; a crash is the last of them."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        outcomes: list[dict[str, Any]] = []
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        try:
            process.stdin.write(name + "\n")
            process.stdin.flush()
            for line in process.stdout:
                found = json.loads(line)
                if found is None:
                    return outcomes
                outcomes.append(found)
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        code = process.wait()
        self._process = None
        crash = {"unit": name, "op": "", "node": "", "depth": 0.0, "kind": "none"}
        why = f"the process ended with {code}, or took over {PATIENCE:g} s"
        return [*outcomes, {**crash, "outcome": "crashed", "detail": why, "seconds": 0.0}]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.mutants", "--serve", self._mode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def run_all(names: Sequence[str], workers: int, mode: str) -> Iterator[Result]:
    """Yield the outcomes of each unit as they are ready."""
    return run_jobs(
        names, workers, lambda: Child(mode), lambda child, name: (name, child.run(name))
    )
