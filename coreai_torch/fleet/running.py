"""`run`: expand a plan, skip what is done, run the rest and write the results."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from .. import __version__
from .columns import LOST, PASS
from .content import Hasher, versions
from .isolating import run_task
from .local_engine import LocalEngine
from .plan import Plan
from .results import RESULTS, RUN, Writer, iterate
from .task import Task

Function = Callable[..., dict[str, Any]]
Observer = Callable[["RunSummary"], None]
_CAUSES = 1000  # that are counted, so that a summary does not grow with the plan


class Engine(Protocol):
    """Runs tasks and yields their rows."""

    @property
    def dashboard(self) -> str:
        """The address of a page with the state of the workers, or an empty text."""

    @property
    def running(self) -> int:
        """The number of tasks that run now."""

    def run(self, tasks: Iterator[Task], function: Function = ...) -> Iterator[dict[str, Any]]:
        """Yield one row for each task."""


@dataclass
class RunSummary:
    """The state of a run: how many tasks there are, and what became of them."""

    total: int
    skipped: int = 0
    skipped_failed: int = 0  # skipped tasks that did not pass in an earlier run
    verdicts: Counter[str] = field(default_factory=Counter)
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)  # verdict and cause
    examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # tasks of each cause
    engine: Engine | None = field(default=None, repr=False)
    began: float = field(default_factory=time.monotonic)
    folder: Path = Path()
    latest: Mapping[str, Any] = field(default_factory=dict)  # the row of the last finished task

    def add(self, row: Mapping[str, Any]) -> None:
        """Count the row of a finished task."""
        self.latest = row
        self.verdicts[row["verdict"]] += 1
        cause = (row["verdict"], row.get("cause", ""))
        if row["verdict"] != PASS and (cause in self.causes or len(self.causes) < _CAUSES):
            self.causes[cause] += 1
            self.examples.setdefault(cause, []).append(str(row.get("id", "")))

    @property
    def done(self) -> int:
        """The number of tasks that this run finished."""
        return sum(self.verdicts.values())

    @property
    def running(self) -> int:
        """The number of tasks that run now."""
        return 0 if self.engine is None else self.engine.running

    @property
    def failed(self) -> int:
        """The number of them that did not pass."""
        return self.done - self.verdicts[PASS]

    @property
    def ok(self) -> bool:
        """Whether all tasks passed, in this run or an earlier one."""
        return self.failed == 0 and self.skipped_failed == 0


def run(
    plan: Plan,
    folder: Path | str,
    *,
    engine: Engine | None = None,
    retry_failed: bool = False,
    observer: Observer | None = None,
    function: Function = run_task,
) -> RunSummary:
    """Run the tasks of a plan that are not done, and write their results to a folder.

    ```python
    from coreai_torch import fleet

    summary = fleet.run(fleet.load_plan("nightly.yaml"), "results")
    rows = fleet.read_rows("results")
    ```

    Args:
        plan: the plan.
        folder: receives `results.parquet`; the results of an earlier run there are continued.
        engine: runs the tasks; by default one after another on this machine.
        retry_failed: run the tasks again that did not pass; otherwise only those whose worker was
            lost, and those whose content hash changed.
        observer: is called after each result with the state of the run.
        function: runs one task in a worker.
    """
    if engine is None:
        with LocalEngine() as local:
            return run(
                plan,
                folder,
                engine=local,
                retry_failed=retry_failed,
                observer=observer,
                function=function,
            )
    folder = Path(folder)
    summary = RunSummary(total=sum(1 for _ in plan.tasks()), folder=folder, engine=engine)
    with Writer(folder) as writer:
        done = _done(folder, retry_failed)
        _describe_run(plan, folder)
        tasks = _remaining(plan, folder, done, summary)
        for row in engine.run(tasks, function):
            writer.write(row)
            summary.add(row)
            if observer is not None:
                observer(summary)
    return summary


def _done(folder: Path, retry_failed: bool) -> dict[str, tuple[str, str]]:
    """Return the content hash and the verdict of each task that need not run again."""
    done: dict[str, tuple[str, str]] = {}
    for row in iterate(folder, ["id", "key", "verdict"]):
        again = row["verdict"] == LOST or (retry_failed and row["verdict"] != PASS)
        if again:
            done.pop(row["id"], None)
        else:
            done[row["id"]] = (row["key"], row["verdict"])
    return done


def _remaining(
    plan: Plan, folder: Path, done: dict[str, tuple[str, str]], summary: RunSummary
) -> Iterator[Task]:
    hasher = Hasher()
    keep = str((folder / "assets").absolute()) if plan.keep else ""
    for task in plan.tasks():
        keyed = hasher.keyed(task)
        key, verdict = done.get(task.id, ("", ""))
        if key == keyed.key:
            summary.skipped += 1
            summary.skipped_failed += verdict != PASS
        else:
            yield replace(keyed, keep=keep)


def _describe_run(plan: Plan, folder: Path) -> None:
    """Write what a reader of the folder needs to know about its latest run."""
    data = {
        "plan": plan.name,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "coreai_torch": __version__,
        "versions": list(versions()),
        "results": RESULTS,
    }
    (folder / RUN).write_text(json.dumps(data, indent=1) + "\n")
