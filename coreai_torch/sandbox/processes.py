"""Memory and time of a process with its descendants, and ways to end them all."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FILES = 1 << 12  # more than this process has open when it starts
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl, in <sys/prctl.h> of Linux


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends, so that none survives a kill."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def prefer_for_oom_kill() -> None:
    """Make this process the first that the system kills if it runs out of memory."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def forbid_core_dump() -> None:
    """Write no memory image of this process to the disk if it crashes."""
    import resource  # absent on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_with_parent(pipe: int, folder: str = "") -> None:
    """Start a process that kills this one and removes its folder if the parent ends first.

    The parent alone has the other end of the pipe. A native call that does not return reads no
    input and may hold the interpreter lock, so a thread cannot do this.
    """
    process = os.getpid()
    if os.fork():
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; this process outlives it
    os.dup2(pipe, 0)
    os.closerange(1, _FILES)  # the parent recognizes a crash by the end of the pipes
    until_closed = select.poll()
    until_closed.register(0, 0)  # no event but the end of the pipe, which the parent may write to
    until_closed.poll()
    if os.getppid() == process:
        os.kill(process, signal.SIGKILL)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def processor_ticks(pid: int) -> float:
    """Return the ticks that a process used; NaN if it ended or waits for a disk."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return float("nan") if fields[0] == "D" else float(fields[11]) + float(fields[12])


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    children = _children_by_parent() if not _has_children_files() else None
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        direct = list(_children(current)) if children is None else children.get(current, [])
        found += direct
        waiting += direct
    return found


def resident_bytes(pids: list[int]) -> int:
    """Return the resident memory of processes; one that ended counts zero."""
    if Path("/proc/self/statm").exists():
        return sum(_resident(pid) for pid in pids)
    table = {pid: rss for pid, _, rss in _table()}
    return sum(table.get(pid, 0) for pid in pids)


def kill(pids: list[int]) -> None:
    """Kill processes; ignore those that ended."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_descendants() -> None:
    """Kill and reap every descendant of this process."""
    while found := descendants(os.getpid()):
        kill(found)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        if sys.platform != "linux":  # orphans belong to another process there
            return


def _has_children_files() -> bool:
    return (
        Path("/proc/self/task").is_dir()
        and Path(f"/proc/self/task/{os.getpid()}/children").exists()
    )


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                yield from map(int, text.split())


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _children_by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid, parent, _ in _table():
        found.setdefault(parent, []).append(pid)
    return found


def _table() -> list[tuple[int, int, int]]:
    """Return all processes as (id, id of the parent, resident bytes)."""
    command = ["ps", "-axo", "pid=,ppid=,rss="]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    rows = [line.split() for line in lines]
    return [(int(pid), int(parent), int(rss) << 10) for pid, parent, rss in rows]
