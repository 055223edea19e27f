"""A bar for conversions that take a while, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 1.0  # seconds before anything is shown


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Gives a function to call once per step; silent when piped or quick."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
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
