"""Run tasks one after another on this machine, without Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .columns import LOST
from .isolating import close_guards, run_task
from .task import Task

Function = Callable[..., dict[str, Any]]
RETRIES = 2  # of a task whose worker was lost or had a full disk


class LocalEngine:
    """One task at a time, each in a child process; a context manager."""

    dashboard = ""
    workers = 1
    running = 0

    def __enter__(self) -> LocalEngine:
        """Return the engine."""
        return self

    def __exit__(self, *ended: object) -> None:
        """End the child processes."""
        close_guards()

    def run(self, tasks: Iterable[Task], function: Function = run_task) -> Iterator[Any]:
        """Yield the row of each task."""
        for task in tasks:
            self.running = 1
            yield _attempts(task.as_dict(), function)
            self.running = 0


def _attempts(task: Mapping[str, Any], function: Function) -> dict[str, Any]:
    for attempt in range(1, RETRIES + 1):
        row = function(task, attempt)
        if row["verdict"] != LOST:
            break
    return row
