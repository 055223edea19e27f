"""Run a native step in a forked child, so that a crash is an error and not the end of the process.

coreai-core 1.0.0b3 ends the process when it fails: `_save_bytecode` on a full disk prints "LLVM
ERROR: IO failure on output stream" and calls `exit(1)`. A forked child shares the memory of the
program, so no weights are copied, and MLIR runs one thread per context, so the child lacks none.

Only Linux forks. On macOS the child of a process with threads may not use the system's frameworks;
there the step runs in this process. The commands of the command line are safe on both: see
`cli.supervisor`.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import select
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import NativeError

_IDLE = 30.0  # seconds without processor time after which a child counts as blocked
_TAIL = 6  # lines of the native log that a message shows
_REPORT = "report this with the model; verify(...) names the op that crashed"


def run_step(
    step: Callable[[], None], doing: str, started: Callable[[], None] = lambda: None
) -> bool:
    """Run the step in a child; return False if it must run in this process instead.

    An exception of the step is raised here. A crash raises a `NativeError`. With the environment
    variable `COREAI_TORCH_FORK=0`, no child is started. `started` is called in this process when
    the child runs.
    """
    if not sys.platform.startswith("linux") or os.environ.get("COREAI_TORCH_FORK") == "0":
        return False
    sys.stdout.flush()  # the child must not print it again
    logs, results = os.pipe(), os.pipe()
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of threads, which the step does not use
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:  # not enough memory for a second process
        _close(*logs, *results)
        return False
    if child == 0:
        _run(step, logs[1], results[1])
    _close(logs[1], results[1])
    try:
        started()
        log = _read_log(child, logs[0])
        result = _read(results[0])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _close(logs[0], results[0])
        end = _wait(child)
    return _outcome(log, result, end, doing)


def _run(step: Callable[[], None], log: int, result: int) -> None:
    """Run the step in the child and report its exception; never return."""
    gc.disable()  # finalizers of the parent's objects must not run twice
    faulthandler.disable()
    import resource  # absent on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(log, 1)
    os.dup2(log, 2)
    error: BaseException | None = None
    try:
        step()
    except BaseException as raised:
        error = raised
    with suppress(BaseException):
        # The parent reads the log to its end before the result: an exception of more than 64 KB
        # fills the pipe of the result, and the child would wait with an open log.
        _close(log, 1, 2)
        with open(result, "wb") as pipe:
            pipe.write(_packed(error))
    os._exit(0)


def _packed(error: BaseException | None) -> bytes:
    """Return an exception for the parent; as text if it cannot be sent."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        data = pickle.dumps(RuntimeError(str(error)[:10_000]))
    return data


def _read_log(child: int, pipe: int) -> str | None:
    """Return what the child prints until it ends, or None if it is blocked."""
    parts: list[bytes] = []
    used = -1.0
    while True:
        ready, _, _ = select.select([pipe], [], [], _IDLE)
        if ready:
            part = os.read(pipe, 1 << 16)
            if not part:
                return b"".join(parts).decode(errors="replace")
            parts.append(part)
            continue
        before, used = used, _processor_time(child)
        if used == before:  # another thread of the parent had a lock that the child waits for
            os.kill(child, signal.SIGKILL)
            return None


def _processor_time(child: int) -> float:
    """Return the ticks that a process used; infinitely many new ones while it waits for a disk."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    waits_for_disk = fields[0] == "D"
    return float("nan") if waits_for_disk else float(fields[11]) + float(fields[12])


def _read(pipe: int) -> bytes:
    parts = []
    while part := os.read(pipe, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _wait(child: int) -> str:
    """Return how the child ended, as the end of a sentence."""
    try:
        _, status = os.waitpid(child, 0)
    except ChildProcessError:  # the user's process ignores SIGCHLD
        return "ended"
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"


def _outcome(log: str | None, result: bytes, end: str, doing: str) -> bool:
    """Return whether the step is done; raise its exception, or an error that describes a crash."""
    if log is None:
        return False
    if not result:
        lines = [line for line in log.splitlines() if line.strip()][-_TAIL:]
        said = "\n  log   " + "\n        ".join(lines) if lines else ""
        raise NativeError(f"the native code {end} while {doing}{said}\n  try   {_REPORT}")
    error = pickle.loads(result)
    if error is not None:
        raise error
    if log:
        os.write(2, log.encode())
    return True


def _close(*files: int) -> None:
    for file in files:
        os.close(file)
