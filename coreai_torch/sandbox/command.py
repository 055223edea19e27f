"""Run a command in a child process, so that a crash of native code is an error with a code.

The child is forked before torch and coreai are imported, when the process has one thread and no
native state. It reports its exit code and its unfinished files. If it ends without an exit code,
native code crashed: LLVM ends a process with exit code 1 when a disk is full, which would read as
"a check failed".
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import NativeError
from . import processes, scratch
from .channel import Channel
from .child import Child

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def can_supervise() -> bool:
    """Return whether a child can be forked: no native library is loaded yet."""
    return hasattr(os, "fork") and not {"torch", "coreai"} & set(sys.modules)


def supervised(command: Callable[[], int], failed: Callable[[NativeError], int]) -> int:
    """Run the command in a child and return its exit code; `failed` reports a crash."""
    lifeline, held = os.pipe()

    def body(channel: Channel) -> None:
        os.close(held)
        processes.end_with_parent(lifeline)
        raise SystemExit(_report(command, channel))

    messages: list[int | Path] = []
    with Child.fork(body, prints=False) as child, _forwarded_signals(child.pid):
        ended = child.until_end(messages.append)
    codes = [message for message in messages if isinstance(message, int)]
    if codes:
        return codes[-1]
    for folder in messages:
        shutil.rmtree(str(folder), ignore_errors=True)
    if -ended.code in _SIGNALS:
        return 128 - ended.code
    hint = (
        "use a machine with more memory: the system ends a process that takes too much"
        if -ended.code == signal.SIGKILL
        else "read the lines above, and report this with the model if they do not name a cause"
    )
    return failed(NativeError(ended.message("before the command finished", hint)))


def _report(command: Callable[[], int], channel: Channel) -> int:
    """Run the command in the child, and report its scratch folders and its exit code."""
    scratch.on_scratch(lambda folder: channel.send(folder.absolute()))
    code = command()
    if not _is_ignored(signal.SIGINT):  # from here on the parent reports an interruption
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    channel.send(code)
    return code


@contextmanager
def _forwarded_signals(child: int) -> Iterator[None]:
    """Pass SIGINT and SIGTERM on to the child while it runs."""

    def forward(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    before = {n: signal.signal(n, forward) for n in _SIGNALS if not _is_ignored(n)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_ignored(number: int) -> bool:
    """Return whether whoever started this process wants it to ignore a signal, as nohup does."""
    return signal.getsignal(number) is signal.SIG_IGN
