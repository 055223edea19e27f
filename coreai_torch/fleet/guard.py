"""The guard: a process that runs one task after another, each in a fresh child process.

The guard imports torch once and forks for each task; where a fork is not safe it starts a new
interpreter. It watches the child's time and memory, and kills the child with all descendants at a
limit, or when its own parent ends. It answers each request on standard input with one line of JSON,
whatever the child does. It writes nothing to a disk, which may be full.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from . import processes
from .columns import CRASH, LOST, MEMORY, TIMEOUT

Work = Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]

START = "COREAI_TORCH_FLEET_START"  # "fork" or "spawn"
_POLL = 0.1  # seconds between two looks at the memory of a child
_ENDING = 0.005  # the same, while the child ends
_TAIL = 4000  # bytes of the child's standard error that are kept
_SHOWN = 6  # lines of it in a message


def serve(work: Work, module: str, preload: Sequence[str]) -> None:
    """Answer requests until standard input closes; `module` is the program to spawn."""
    # Ctrl-C reaches all processes of a terminal; the end of the parent ends this one in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.dup(0), os.dup(1)
    _redirect(os.devnull, 0)
    os.dup2(2, 1)
    processes.adopt_orphans()
    forks = _forks()
    if forks:
        _import(preload)
    with os.fdopen(requests, "rb", buffering=0) as reader, os.fdopen(answers, "wb", 0) as writer:
        while line := reader.readline():
            request = json.loads(line)
            child = _fork(work, request) if forks else _spawn(module, request)
            answer = child if isinstance(child, dict) else _Watch(child, request, requests).run()
            writer.write(json.dumps(answer).encode() + b"\n")


def run_in_fork(work: Work, task: dict[str, Any]) -> dict[str, Any]:
    """Run a task in a fork of this process, which has imported what the task needs.

    All descendants of this process are killed at the end of the task.
    """
    request = {"task": task}
    child = _fork(work, request)
    return child if isinstance(child, dict) else _Watch(child, request).run()


def once(work: Work) -> None:
    """Run the one task that standard input has, in a process that the guard spawned."""
    request = json.loads(sys.stdin.buffer.readline())
    results = os.dup(1)
    os.dup2(2, 1)
    _run_child(work, request, results)


def _forks() -> bool:
    default = "fork" if sys.platform == "linux" else "spawn"
    return os.environ.get(START, default) == "fork"


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        with suppress(ImportError):  # the task reports it
            importlib.import_module(name)


def _redirect(path: str, number: int) -> None:
    opened = os.open(path, os.O_RDWR)
    os.dup2(opened, number)
    os.close(opened)


@dataclass
class _Child:
    """A running child process with the pipes of its results and its standard error."""

    pid: int
    results: int
    errors: int
    folder: str


def _scratch(request: dict[str, Any]) -> str | dict[str, Any]:
    """Return a new folder for temporary files, or the result if none can be made."""
    try:
        return tempfile.mkdtemp(prefix="coreai-fleet-", dir=request.get("scratch") or None)
    except OSError as error:
        return {**_disk_result(error), "seconds": 0.0}


def _disk_result(error: OSError) -> dict[str, Any]:
    cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "scratch folder"
    return {"verdict": LOST, "cause": cause, "message": str(error)}


def _fork(work: Work, request: dict[str, Any]) -> _Child | dict[str, Any]:
    folder = _scratch(request)
    if isinstance(folder, dict):
        return folder
    (results, result_end), (errors, error_end) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid:
        os.close(result_end)
        os.close(error_end)
        return _Child(pid, results, errors, folder)
    try:
        os.dup2(error_end, 2)
        os.dup2(2, 1)
        _run_child(work, {**request, "folder": folder}, result_end)
    finally:
        os._exit(1)


def _spawn(module: str, request: dict[str, Any]) -> _Child | dict[str, Any]:
    folder = _scratch(request)
    if isinstance(folder, dict):
        return folder
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--once"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps({**request, "folder": folder}).encode() + b"\n")
    process.returncode = 0  # `_Watch` waits for the process
    results, errors = os.dup(process.stdout.fileno()), os.dup(process.stderr.fileno())
    process.stdout.close()
    process.stderr.close()
    return _Child(process.pid, results, errors, folder)


def _run_child(work: Work, request: dict[str, Any], results: int) -> None:
    """Run the task in this process, send what it reports and its result, and exit."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    processes.prefer_for_oom_kill()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tempfile.tempdir = os.environ["TMPDIR"] = request["folder"]

    def send(data: dict[str, Any]) -> None:
        line = json.dumps(data).encode() + b"\n"
        while line:
            line = line[os.write(results, line) :]

    try:
        send({"result": work(request["task"], lambda part: send({"part": part}))})
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


@dataclass
class _Watch:
    """Watches a child until it ends or reaches a limit."""

    child: _Child
    request: dict[str, Any]
    parent: int | None = None  # closes when the process that sends the tasks ends
    began: float = field(default_factory=time.monotonic)
    peak: int = 0
    received: bytearray = field(default_factory=bytearray)
    log: bytearray = field(default_factory=bytearray)
    open_pipes: set[int] = field(default_factory=set)
    status: int | None = None

    def run(self) -> dict[str, Any]:
        """Return the result of the child, or the reason that there is none."""
        try:
            stopped = self._watch()
        finally:
            processes.kill_descendants()
            os.close(self.child.results)
            os.close(self.child.errors)
            shutil.rmtree(self.child.folder, ignore_errors=True)
        seconds = time.monotonic() - self.began
        measured = {"seconds": round(seconds, 3), "peak_mb": round(self.peak / 1e6, 1)}
        return {**self._result(stopped), **measured}

    def _watch(self) -> dict[str, Any]:
        """Read the pipes until the child ends; return the reason if it was stopped."""
        limits = self.request["task"]["limits"]
        self.open_pipes = {self.child.results, self.child.errors}
        while True:
            # A child that closed its pipes ends at once, unless it hangs in its last steps.
            patience = _POLL if self.open_pipes else _ENDING
            pipes = [*self.open_pipes, *([] if self.parent is None else [self.parent])]
            ready, _, _ = select.select(pipes, [], [], patience)
            if self.parent in ready:  # only one request is sent at a time: this is the end
                processes.kill_descendants()
                shutil.rmtree(self.child.folder, ignore_errors=True)
                os._exit(0)
            for pipe in ready:
                self._read(pipe)
            if self._ended():
                return {}
            if (reason := self._limit_reached(limits)) is not None:
                return reason

    def _read(self, pipe: int) -> None:
        data = os.read(pipe, 1 << 16)
        if not data:
            self.open_pipes.discard(pipe)
        elif pipe == self.child.results:
            self.received += data
        else:
            self.log = (self.log + data)[-_TAIL:]

    def _ended(self) -> bool:
        """Return whether the child ended; read then what is left in the pipes."""
        pid, status = os.waitpid(self.child.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.status = status
        while ready := select.select([*self.open_pipes], [], [], 0)[0]:
            for pipe in ready:
                self._read(pipe)
        return True

    def _limit_reached(self, limits: dict[str, float]) -> dict[str, Any] | None:
        tree = [self.child.pid, *processes.descendants(self.child.pid)]
        used = processes.resident_bytes(tree)
        self.peak = max(self.peak, used)
        if used > limits["memory"] * 1e9:
            message = f"used {used / 1e9:.1f} GB, the limit is {limits['memory']:g} GB"
            return {"verdict": MEMORY, "cause": "memory limit", "message": message}
        if time.monotonic() - self.began > limits["seconds"]:
            message = f"did not end in {limits['seconds']:g} s"
            return {"verdict": TIMEOUT, "cause": "time limit", "message": message}
        return None

    def _result(self, stopped: dict[str, Any]) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for line in bytes(self.received).splitlines():
            with suppress(ValueError):  # a child that was killed may leave half a line
                data = json.loads(line)
                if "result" in data and not stopped:
                    return {**parts, **data["result"]}
                parts.update(data.get("part", {}))
        return {**parts, **(stopped or self._ending())}

    def _ending(self) -> dict[str, Any]:
        """Describe a child that ended without a result."""
        lines = bytes(self.log).decode(errors="replace").splitlines()
        shown = "\n".join([line for line in lines if line.strip()][-_SHOWN:])
        status = self.status or 0
        if not os.WIFSIGNALED(status):
            code = os.waitstatus_to_exitcode(status)
            reason = f"exit code {code}"
            return {"verdict": CRASH, "cause": reason, "message": shown or f"ended with {reason}"}
        name = signal.Signals(os.WTERMSIG(status)).name
        if name == "SIGKILL":
            message = "killed by SIGKILL, which the system sends if memory runs out"
            return {"verdict": MEMORY, "cause": "out of memory", "message": message}
        return {"verdict": CRASH, "cause": name, "message": shown or f"killed by {name}"}
