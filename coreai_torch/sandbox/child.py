"""A child process seen from its parent: what it sends and prints, its limits, and how it ends.

Nothing is written to a disk, which may be full.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..stopwatch import Stopwatch
from . import processes
from .channel import Channel, send, take

_POLL = 0.1  # seconds between two looks at a child
_ENDING = 0.001  # the same, while the child ends
_BLOCK = 1 << 20  # bytes that one read takes at most
_KEPT = 1 << 16  # bytes of what a child prints that are kept
_SHOWN = 6  # lines of it that a message shows
_START = "from coreai_torch.sandbox.spawned import main; main()"
IDLE, MEMORY, PARENT, SECONDS = "idle", "memory", "parent", "seconds"


@dataclass(frozen=True)
class Limits:
    """When a child is given up; the time counts from the construction of this object."""

    seconds: float = math.inf
    memory: float = math.inf  # bytes of the child with its descendants
    idle: float = math.inf  # seconds without output or processor time; only on Linux
    parent: int = -1  # a pipe that closes when the parent of this process ends
    watch: Stopwatch = field(default_factory=Stopwatch)


class Ended(Exception):  # noqa: N818  callers raise another error from it
    """The child ended, or reached the limit that `limit` names."""

    when = ""  # what it did then, as the end of a sentence

    def __init__(self, why: str, limit: str, code: int, log: bytearray) -> None:
        super().__init__(why)
        self.why, self.limit = why, limit
        self.code = code  # negative: of the signal that killed it
        self.log = log.decode(errors="replace")

    def last_lines(self, without: str = "\0") -> list[str]:
        """Return the last lines that the child printed, but those with a text."""
        lines = [line for line in self.log.splitlines() if line.strip() and without not in line]
        return lines[-_SHOWN:]

    def message(self, when: str, hint: str, without: str = "\0") -> str:
        """Describe a crash, with the last lines that the child printed."""
        lines = "\n        ".join(self.last_lines(without))
        log = f"\n  log   {lines}" if lines else ""
        return f"the native code {self.why} {when}{log}\n  try   {hint}"


def how_ended(code: int) -> str:
    """Describe the end of a process by its exit code, which is negative for a signal."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


class Child:
    """A child process with the pipes of its messages, of what it prints, and of its requests."""

    def __init__(self, pid: int, messages: Any, prints: Any, requests: Any = None) -> None:
        self.pid, self.alive = pid, True
        self.peak = 0  # bytes of memory, measured if they are limited
        self._files = [file for file in (messages, prints, requests) if file is not None]
        self._messages, self._requests = messages.fileno(), requests
        self._open = {messages.fileno(), prints.fileno()}
        self._received, self._printed = bytearray(), bytearray()
        self._end: Ended | None = None
        self._look = self._active = time.monotonic()
        self._ticks = -1.0

    @classmethod
    def fork(cls, body: Callable[[Channel], object], *, prints: bool = True) -> Child:
        """Run the body in a copy of this process, which ends when the body returns.

        With `prints`, this process keeps what the copy prints.
        """
        if sys.stdout is not None:
            sys.stdout.flush()  # the copy must not print it again
        (messages, sender), (log, printer) = os.pipe(), os.pipe()
        try:
            with warnings.catch_warnings():  # Python 3.12 warns of threads, which a copy lacks
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError:  # not enough memory for a second process
            _close(messages, sender, log, printer)
            raise
        if pid:
            _close(sender, printer)
            return cls(pid, os.fdopen(messages, "rb", 0), os.fdopen(log, "rb", 0))
        _close(messages, log)
        for number in (1, 2) if prints else ():
            os.dup2(printer, number)
        _close(printer)
        body(Channel(sender))
        os._exit(0)

    @classmethod
    def spawn(
        cls,
        target: str,
        *arguments: Any,
        python: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Call `module:function` with a channel and the arguments in a new interpreter.

        Without `python`, that is the interpreter of this process with its import path.
        """
        path = "" if python else f"import sys; sys.path[:] = {[*map(str, sys.path)]}; "
        process = subprocess.Popen(
            [python or sys.executable, "-c", path + _START],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # so that Ctrl-C reaches this process only
        )
        process.returncode = 0  # `Child` waits for the process
        child = cls(process.pid, process.stdout, process.stderr, process.stdin)
        child.send((target, arguments))
        return child

    def send(self, request: Any) -> None:
        """Send a request; if the child ended, `receive` says so."""
        with suppress(BrokenPipeError):
            send(self._requests.fileno(), request)

    def ask(self, request: Any, limits: Limits | None = None) -> Any:
        """Send a request and return the next message."""
        self.send(request)
        return self.receive(limits)

    def receive(self, limits: Limits | None = None) -> Any:
        """Return the next message; raise `Ended` if the child ends or reaches a limit before."""
        limits = limits or Limits()
        try:
            while (message := take(self._received)) is None:
                if self._end is not None:
                    raise self._end
                self._wait(limits)
        except Ended:
            self.alive = False
            raise
        return message[0]

    def until_end(self, use: Callable[[Any], object], limits: Limits | None = None) -> Ended:
        """Call `use` with each message; return how the child ended."""
        try:
            while True:
                use(self.receive(limits))
        except Ended as ended:
            return ended

    @property
    def ended(self) -> bool:
        """Whether the process ended, also without a word."""
        return self._end is not None or self._reaped()

    def close(self) -> None:
        """Kill the process if it runs."""
        if self._end is None:
            processes.kill([self.pid])
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self._end = self._ended("was closed")
        self.alive = False
        for file in self._files:
            file.close()

    def __enter__(self) -> Child:
        """Return the child itself."""
        return self

    def __exit__(self, *ended: object) -> None:
        """Kill the process if it runs."""
        self.close()

    def _wait(self, limits: Limits) -> None:
        """Read what the child sends and prints; now and then look whether it ended."""
        # A child that closed its pipes ends at once, unless it hangs in its last steps.
        patience = min(_POLL if self._open else _ENDING, limits.idle)
        ready = _ready({*self._open, limits.parent} - {-1}, patience)
        if limits.parent in ready:
            raise self._ended("lost its parent", PARENT)
        for pipe in ready:
            self._read(pipe)
        if not ready or not self._open or time.monotonic() > self._look:
            self._look = time.monotonic() + _POLL
            if not self._reaped():
                self._check(limits)

    def _read(self, pipe: int) -> None:
        data = os.read(pipe, _BLOCK)
        self._active = time.monotonic()
        if not data:
            self._open.discard(pipe)
        elif pipe == self._messages:
            self._received += data
        else:
            self._printed = (self._printed + data)[-_KEPT:]

    def _reaped(self) -> bool:
        """Return whether the child ended; read then what is left in the pipes."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # this process ignores SIGCHLD
            pid, status = self.pid, None
        if pid == 0:
            return False
        while ready := _ready(self._open, 0.0):
            for pipe in ready:
                self._read(pipe)
        code = 0 if status is None else os.waitstatus_to_exitcode(status)
        self._end = self._ended("ended" if status is None else how_ended(code), code=code)
        return True

    def _check(self, limits: Limits) -> None:
        """Raise if the child reached a limit."""
        now = time.monotonic()
        if limits.memory < math.inf:
            used = processes.resident_bytes([self.pid, *processes.descendants(self.pid)])
            self.peak = max(self.peak, used)
            if used > limits.memory:
                figures = f"{used / 1e9:.1f} GB, the limit is {limits.memory / 1e9:g} GB"
                raise self._ended(f"used {figures}", MEMORY)
        if limits.watch.seconds > limits.seconds:
            raise self._ended(f"took more than {limits.seconds:g} s", SECONDS)
        if limits.idle < math.inf:
            ticks = processes.processor_ticks(self.pid)
            if ticks != self._ticks:
                self._ticks, self._active = ticks, now
            elif now - self._active > limits.idle:
                raise self._ended("waited for nothing", IDLE)

    def _ended(self, why: str, limit: str = "", code: int = 0) -> Ended:
        return Ended(why, limit, code, self._printed)


def _ready(pipes: Iterable[int], seconds: float) -> list[int]:
    """Return the pipes that can be read; `select` takes no number above 1023."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    return [pipe for pipe, _ in poll.poll(1000 * seconds)]


def _close(*files: int) -> None:
    for file in files:
        os.close(file)
