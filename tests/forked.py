"""Run jobs in forked children: a crash or a timeout affects one job only.

For jobs that a fleet run does not fit: batches of cases of some milliseconds each, which are split
when one crashes (tests/rewrites), and functions that return Python objects (tests/linting).
"""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from typing import Any

_FORK = multiprocessing.get_context("fork")


def preload(*modules: str) -> None:
    """Import what the first conversion of a process imports, before children are forked."""
    import importlib

    import lean_torch
    import torch

    os.environ["HF_HUB_OFFLINE"] = "1"
    lean_torch.make_lean()
    torch.set_num_threads(1)
    for name in ("tests.sweep.preloaded", *modules):
        importlib.import_module(name)


class Child:
    """One job in a forked process."""

    def __init__(self, function: Callable[[Any], Any], job: Any, seconds: float) -> None:
        self.job, self.end = job, time.monotonic() + seconds
        self.pipe, theirs = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=_work, args=(function, job, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def result(self) -> tuple[Any, str]:
        """Return the result, and why there is none: a crash or a timeout."""
        try:
            return (self.pipe.recv(), "") if self.pipe.poll() else (None, "timeout")
        except EOFError:
            self._process.join(10)
            return None, f"crash, exit code {self._process.exitcode}"
        finally:
            self._process.kill()
            self._process.join()
            self.pipe.close()


def _work(function: Callable[[Any], Any], job: Any, pipe: Any) -> None:
    log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    warnings.simplefilter("ignore")
    pipe.send(function(job))
    pipe.close()
    os._exit(0)


def run(
    function: Callable[[Any], Any],
    jobs: Iterable[Any],
    workers: int,
    *,
    patience: float = 300.0,
    until: float = 1e18,
    instead: Callable[[Any], list[Any]] = lambda job: [],
) -> Iterator[tuple[Any, Any, str]]:
    """Yield jobs with their results, or why there is none; start no job after `until`.

    `instead` returns the jobs to run in place of one that crashed or took too long.
    """
    queue, running = deque(jobs), []
    while queue or running:
        while queue and len(running) < workers and time.monotonic() < until:
            running.append(Child(function, queue.popleft(), patience))
        if not running:
            return
        ready = set(wait([child.pipe for child in running], timeout=1.0))
        for child in [c for c in running if c.pipe in ready or time.monotonic() > c.end]:
            running.remove(child)
            result, failure = child.result()
            if failure and (smaller := instead(child.job)):
                queue.extendleft(smaller)
            else:
                yield child.job, result, failure
