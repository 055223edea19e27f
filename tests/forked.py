"""Run jobs in forked children: a crash or a timeout affects one job only.

For jobs that a fleet run does not fit: batches of cases of some milliseconds each, which are split
when one crashes (tests/rewrites), and functions that return Python objects (tests/linting).
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from coreai_torch.sandbox.call import answer
from coreai_torch.sandbox.child import Child, Ended, Limits
from tests.worker_threads import run_jobs

Result = tuple[Any, Any, str]  # a job, what it returned, and why it returned nothing


def preload(*modules: str) -> None:
    """Import what the first conversion of a process imports, before children are forked."""
    import importlib

    import lean_torch
    import torch

    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    lean_torch.make_lean()
    torch.set_num_threads(1)
    for name in ("tests.sweep.preloaded", *modules):
        importlib.import_module(name)


def run(
    function: Callable[[Any], Any],
    jobs: Iterable[Any],
    workers: int,
    *,
    patience: float = 300.0,
    until: float = 1e18,
    instead: Callable[[Any], list[Any]] = lambda job: [],
) -> Iterator[Result]:
    """Yield jobs with their results, or why there is none; start no job after `until`.

    `instead` returns the jobs to run in place of one that crashed or took too long.
    """

    def results(job: Any) -> list[Result]:
        if time.monotonic() > until:
            return []
        with Child.fork(lambda channel: answer(channel, function, job)) as child:
            try:
                value, error = child.receive(Limits(seconds=patience))
                return [(job, value, "" if error is None else repr(error))]
            except Ended as ended:
                failure = ended.why
        smaller = instead(job)
        return [r for one in smaller for r in results(one)] if smaller else [(job, None, failure)]

    for found in run_jobs(jobs, workers, ExitStack, lambda worker, job: results(job)):
        yield from found
