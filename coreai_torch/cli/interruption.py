"""Ctrl-C while a command runs."""

from __future__ import annotations

import signal
import threading
import time

_interruption = threading.Event()  # set when this process got a SIGINT


def was_interrupted() -> bool:
    """Return whether this process got a SIGINT since `accept_interruption`."""
    return _interruption.is_set()


def accept_interruption() -> None:
    """Raise KeyboardInterrupt on SIGINT if the console script made it end the process.

    A second SIGINT is ignored: a terminal sends one to the child, and the parent passes one on.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        return
    last = float("-inf")

    def interrupt(number: int, frame: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        _interruption.set()
        if last - before > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
