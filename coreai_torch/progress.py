"""Progress display of long conversions, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from .stopwatch import Stopwatch

_DELAY = 1.0  # seconds before the bar appears
_quiet = _verbose = False
Listener = Callable[[str, float | None], None]
_listeners: list[Listener] = []


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Hide progress displays (`coreai-torch -q`), or show torch's own output too (`-v`)."""
    global _quiet, _verbose
    _quiet, _verbose = quiet, verbose


def is_verbose() -> bool:
    """Return whether torch's log lines and the tracebacks of errors are shown."""
    return _verbose


def is_quiet() -> bool:
    """Return whether progress displays are hidden."""
    return _quiet


def _is_shown() -> bool:
    return not _quiet and sys.stderr.isatty()


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call once per step; print nothing if piped or fast."""
    if not _is_shown():
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
    watch = Stopwatch()
    shown = False

    def advance() -> None:
        nonlocal shown
        bar.advance(task)
        if not shown and watch.seconds > _DELAY:
            shown = True
            bar.start()

    try:
        yield advance
    finally:
        if shown:
            bar.stop()


class Stages:
    """Print on a terminal which stage runs, for how many ops, and its time and memory."""

    def __init__(self, console: Any) -> None:
        self._console = console

    @contextmanager
    def __call__(self, name: str, *, ops: int | None = None, live: bool = True) -> Iterator[None]:
        """Run one stage; `live=False` for a stage with its own progress bar."""
        if self._console is None:
            with _reported(name):
                yield
            return
        over = f" {ops:,} ops" if ops is not None else ""
        watch = Stopwatch()
        with self._waiting(f"{name}{over}") if live else nullcontext(), _reported(name):
            yield
        self._console.print(f"{name:<12}{over:>14}  {watch.seconds:7.1f} s  {peak_memory():>7,} MB")

    def note(self, text: object) -> None:
        """Print a line on a terminal."""
        if self._console is not None:
            self._console.print(str(text))

    def _waiting(self, what: str) -> Any:
        """Return a line that shows time and memory while the stage runs."""
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
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener(stage, None)` when a stage begins, and with its seconds when it succeeded."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def _reported(name: str) -> Iterator[None]:
    for listener in _listeners:
        listener(name, None)
    watch = Stopwatch()
    yield
    for listener in _listeners:
        listener(name, watch.seconds)


@contextmanager
def stages() -> Iterator[Stages]:
    """Yield the display for the stages of one run; print nothing if piped."""
    if not _is_shown():
        yield Stages(None)
        return
    from rich.console import Console

    yield Stages(Console(stderr=True, highlight=False))


def peak_memory() -> int:
    """Return the peak memory of this process in megabytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak // (1 << 20 if sys.platform == "darwin" else 1 << 10))
