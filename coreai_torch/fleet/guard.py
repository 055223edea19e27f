"""The guard: a process that runs one task after another, each in a fresh child process.

The guard imports torch once and forks for each task; where a fork is not safe it starts a new
interpreter. It kills the child with all descendants at a limit of time or memory, or when its own
parent ends. It answers each task with its result, whatever the child does.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..sandbox import processes
from ..sandbox.channel import Channel
from ..sandbox.child import MEMORY as MEMORY_LIMIT
from ..sandbox.child import PARENT, Child, Ended, Limits
from ..stopwatch import Stopwatch
from .columns import CRASH, LOST, MEMORY, TIMEOUT

Work = Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]

START = "COREAI_TORCH_FLEET_START"  # "fork" or "spawn"


def serve(channel: Channel, work: Work, preload: Sequence[str]) -> None:
    """Answer the requests, which are tasks with the folder for temporary files."""
    processes.adopt_orphans()
    forks = os.environ.get(START, "fork" if sys.platform == "linux" else "spawn") == "fork"
    for name in preload if forks else ():
        with suppress(ImportError):  # the task reports it
            importlib.import_module(name)
    for task, scratch in channel:
        channel.send(_run(work, task, scratch, forks=forks, parent=channel.requests))


def run_in_fork(work: Work, task: dict[str, Any]) -> dict[str, Any]:
    """Run a task in a fork of this process, which has imported what the task needs.

    All descendants of this process are killed at the end of the task.
    """
    return _run(work, task, forks=True)


def _run(
    work: Work, task: dict[str, Any], scratch: str = "", *, forks: bool, parent: int = -1
) -> dict[str, Any]:
    """Return the result of a task in a child, or the reason that there is none."""
    watch = Stopwatch()
    try:
        folder = tempfile.mkdtemp(prefix="coreai-fleet-", dir=scratch or None)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cause = "the disk is full" if full else "scratch folder"
        return {"verdict": LOST, "cause": cause, "message": str(error), "seconds": 0.0}
    if forks:
        child = Child.fork(lambda channel: in_child(channel, work, task, folder))
    else:
        child = Child.spawn(f"{__name__}:in_child", work, task, folder)
    try:
        result = _watch(child, task["limits"], parent)
    finally:
        processes.kill_descendants()
        child.close()
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(watch.seconds, 3)
    return {**result, "seconds": seconds, "peak_mb": round(child.peak / 1e6, 1)}


def in_child(channel: Channel, work: Work, task: dict[str, Any], folder: str) -> None:
    """Run the task in this process, send what it reports and its result, and exit."""
    processes.prefer_for_oom_kill()
    processes.forbid_core_dump()
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        channel.send(("result", work(task, lambda part: channel.send(("part", part)))))
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _watch(child: Child, limits: Mapping[str, float], parent: int) -> dict[str, Any]:
    """Return what the child sends until it ends, or why it sent nothing."""
    sent: dict[str, dict[str, Any]] = {"part": {}}

    def use(message: tuple[str, dict[str, Any]]) -> None:
        kind, values = message
        sent[kind] = {**sent["part"], **values}

    ended = child.until_end(
        use, Limits(seconds=limits["seconds"], memory=limits["memory"] * 1e9, parent=parent)
    )
    if ended.limit == PARENT:
        raise SystemExit  # `_run` kills the task and removes its folder
    if "result" in sent and not ended.limit:
        return sent["result"]
    return {**sent["part"], **_ending(ended)}


def _ending(ended: Ended) -> dict[str, Any]:
    """Describe a child that ended without a result."""
    if ended.limit:
        verdict, cause = (
            (MEMORY, "memory limit") if ended.limit == MEMORY_LIMIT else (TIMEOUT, "time limit")
        )
        return {"verdict": verdict, "cause": cause, "message": ended.why}
    if -ended.code == signal.SIGKILL:
        message = "killed by SIGKILL, which the system sends if memory runs out"
        return {"verdict": MEMORY, "cause": "out of memory", "message": message}
    cause = signal.Signals(-ended.code).name if ended.code < 0 else f"exit code {ended.code}"
    message = "\n".join(ended.last_lines()) or ended.why
    return {"verdict": CRASH, "cause": cause, "message": message}
