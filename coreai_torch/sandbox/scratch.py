"""Announce folders of unfinished files, so that a parent process removes them after a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_listeners: list[Callable[[Path], None]] = []


def on_scratch(listener: Callable[[Path], None]) -> None:
    """Call the listener with each folder before files are written to it."""
    _listeners.append(listener)


def announce_scratch(folder: Path) -> None:
    """Call the listeners with a folder that will contain unfinished files."""
    for listener in _listeners:
        listener(folder)
