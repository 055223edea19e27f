"""Run a command in a child process, so that a crash of native code is an error with a code.

The child is forked before torch and coreai are imported, when the process has one thread and no
native state. It reports its exit code and its unfinished files through a pipe. If it ends without
an exit code, native code crashed: LLVM ends a process with exit code 1 when a disk is full, which
would read as "a check failed".
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..errors import NativeError

_EXIT, _FOLDER = "exit ", "folder "
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl, in <sys/prctl.h> of Linux


def can_supervise() -> bool:
    """Return whether a child can be forked: no native library is loaded yet."""
    return hasattr(os, "fork") and not {"torch", "coreai"} & set(sys.modules)


def supervised(command: Callable[[], int], failed: Callable[[NativeError], int]) -> int:
    """Run the command in a child and return its exit code; `failed` reports a crash."""
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reader)
        _end_with_parent(parent)
        return _report(command, writer)
    os.close(writer)
    with _forwarded_signals(child), os.fdopen(reader, errors="replace") as pipe:
        lines = pipe.read().splitlines()
        _, status = os.waitpid(child, 0)
    codes = [line.removeprefix(_EXIT) for line in lines if line.startswith(_EXIT)]
    if codes:
        return int(codes[-1])
    for line in lines:
        if line.startswith(_FOLDER):
            shutil.rmtree(line.removeprefix(_FOLDER), ignore_errors=True)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGINT, signal.SIGTERM):
        return 128 + os.WTERMSIG(status)
    return failed(_crash(status))


def _end_with_parent(parent: int) -> None:
    """Kill this process when its parent is killed, which cannot pass SIGKILL on; only on Linux."""
    if sys.platform != "linux":
        return
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def _report(command: Callable[[], int], writer: int) -> int:
    """Run the command in the child, and report its scratch folders and its exit code."""
    from ..asset import scratch

    scratch.on_scratch(lambda folder: _write(writer, f"{_FOLDER}{folder.absolute()}"))
    code = command()
    if not _is_ignored(signal.SIGINT):  # from here on the parent reports an interruption
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _write(writer, f"{_EXIT}{code}")
    return code


def _write(writer: int, line: str) -> None:
    os.write(writer, f"{line}\n".encode(errors="replace"))


@contextmanager
def _forwarded_signals(child: int) -> Iterator[None]:
    """Pass SIGINT and SIGTERM on to the child while it runs."""

    def forward(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if not _is_ignored(n)]
    before = {n: signal.signal(n, forward) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_ignored(number: int) -> bool:
    """Return whether whoever started this process wants it to ignore a signal, as nohup does."""
    return signal.getsignal(number) is signal.SIG_IGN


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


def _crash(status: int) -> NativeError:
    if not os.WIFSIGNALED(status):
        end = f"exited with code {os.waitstatus_to_exitcode(status)}"
    else:
        end = f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    hint = (
        "use a machine with more memory: the system ends a process that takes too much"
        if end.endswith("SIGKILL")
        else "read the lines above, and report this with the model if they do not name a cause"
    )
    return NativeError(f"the native code {end} before the command finished\n  try   {hint}")
