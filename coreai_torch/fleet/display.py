"""Progress of a run in the terminal: done, failed, running, rate and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..progress import is_quiet
from .running import Engine, Observer, RunSummary

_EVERY = 60.0  # seconds between two lines if the output is not a terminal


@contextmanager
def displayed(total: int, engine: Engine) -> Iterator[Observer]:
    """Yield the function that shows the state of a run."""
    if is_quiet():
        yield lambda summary: None
    elif sys.stderr.isatty():
        with _bar(RunSummary(total, engine=engine)) as observer:
            yield observer
    else:
        yield _lines()


def describe(summary: RunSummary) -> str:
    """Return the state in one line."""
    parts = [f"{summary.done + summary.skipped} of {summary.total} done"]
    parts += [f"{summary.skipped} skipped"] if summary.skipped else []
    parts += [f"{summary.failed} failed", f"{summary.running} running"]
    rate = summary.done / max(time.monotonic() - summary.began, 1e-9)
    left = summary.total - summary.done - summary.skipped
    shown = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
    parts += [shown] if rate else []
    parts += [f"{_duration(left / rate)} left"] if rate and left else []
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours:
        return f"{hours} h {minutes % 60:02} min"
    return f"{minutes} min {int(seconds) % 60:02} s" if minutes else f"{int(seconds)} s"


@contextmanager
def _bar(latest: RunSummary) -> Iterator[Observer]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn
    from rich.text import Text

    class State(ProgressColumn):
        """The state now: a task may run for minutes before the next result."""

        def render(self, task: Any) -> Text:
            return Text(describe(latest), no_wrap=True, overflow="ellipsis")

    console = Console(stderr=True)
    with Progress(BarColumn(16), State(), console=console, transient=True) as bar:
        task = bar.add_task("", total=latest.total)

        def show(summary: RunSummary) -> None:
            nonlocal latest
            latest = summary
            bar.update(task, completed=summary.done + summary.skipped)

        yield show


def _lines() -> Observer:
    last = time.monotonic()

    def show(summary: RunSummary) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            sys.stderr.write(f"{describe(summary)}\n")

    return show
