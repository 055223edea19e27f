"""A bar for conversions that take a while, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

_PATIENCE = 1.0  # seconds before anything is shown


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Gives a function to call once per step; silent when piped or quick."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=total)
    started = time.monotonic()
    shown = False

    def advance() -> None:
        nonlocal shown
        bar.advance(task)
        if not shown and time.monotonic() - started > _PATIENCE:
            shown = True
            bar.start()

    try:
        yield advance
    finally:
        if shown:
            bar.stop()


class Stages:
    """Tells on a terminal which stage runs, over how many ops, and what each one took."""

    def __init__(self, console: Any) -> None:
        self._console = console

    @contextmanager
    def __call__(self, name: str, *, ops: int | None = None, live: bool = True) -> Iterator[None]:
        """One stage; `live=False` for one that draws a bar of its own."""
        if self._console is None:
            yield
            return
        over = f" {ops:,} ops" if ops is not None else ""
        started = time.monotonic()
        with self._waiting(f"{name}{over}") if live else nullcontext():
            yield
        took = time.monotonic() - started
        self._console.print(f"{name:<12}{over:>14}  {took:7.1f} s  {peak_memory():>7,} MB")

    def _waiting(self, what: str) -> Any:
        """A line that shows the time and the memory while the stage runs."""
        from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed
        from rich.text import Text

        class Memory(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text(f"{peak_memory():,} MB")

        columns = (SpinnerColumn(), TextColumn("{task.description}"), Elapsed(), Memory())
        bar = Progress(*columns, console=self._console, transient=True)
        bar.add_task(what, total=None)
        return bar


@contextmanager
def stages() -> Iterator[Stages]:
    """For the stages of one run; silent when piped."""
    if not sys.stderr.isatty():
        yield Stages(None)
        return
    from rich.console import Console

    yield Stages(Console(stderr=True, highlight=False))


def peak_memory() -> int:
    """The most memory this process held so far, in megabytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak // (1 << 20 if sys.platform == "darwin" else 1 << 10))
