"""Run a program in a child process, so that a crash of the native code is an exception here."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..asset import program as ir_program
from ..errors import NativeError, NativeTimeout

_LENGTH = struct.Struct("<Q")
_REPORT = "report this with the model; the op named above ran last"
_LONGER = "pass a larger timeout, or smaller inputs; the op named above took the time"
_TAIL = 6  # lines of the native log that a message shows
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class ProgramFile:
    """A program in a file: the bytecode of a module, or an asset."""

    bytecode: Path | None = None
    asset: Path | None = None


@dataclass(frozen=True)
class Ports:
    """The names of a loaded function's inputs, outputs and states, in its order."""

    inputs: list[str]
    outputs: list[str]
    states: list[str]


class Isolated:
    """A function of a program, loaded in a child process; a context manager."""

    def __init__(
        self,
        source: ProgramFile,
        *,
        entrypoint: str = "main",
        optimize: bool = False,
        timeout: float = 600.0,
    ) -> None:
        """Start the child and load the function; raise a `NativeError` if that fails."""
        self._timeout = timeout
        self._child = _Child(detailed=False)
        try:
            self.load(source, entrypoint=entrypoint, optimize=optimize)
        except BaseException:
            self._child.close()
            raise

    def load(
        self, source: ProgramFile, *, entrypoint: str = "main", optimize: bool = False
    ) -> None:
        """Load another program in place of the current one."""
        self._load = ("load", {**_request(source, optimize), "entrypoint": entrypoint})
        self.ports = Ports(**_ask(self._child, [self._load], self._timeout))

    def call(self, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs, and the states after the call."""
        request = ("call", {"inputs": inputs, "states": states})
        reply = _ask(self._child, [self._load, request], self._timeout)
        return reply["outputs"], reply["states"]

    def timed(self, inputs: Arrays, states: Arrays, *, warmup: int, runs: int) -> list[float]:
        """Return the seconds of each of several calls, without the transfer to the child."""
        given = {"inputs": inputs, "states": states, "warmup": warmup, "runs": runs}
        return list(_ask(self._child, [self._load, ("timed", given)], self._timeout)["seconds"])

    def describe(self) -> dict[str, Any]:
        """Return the functions of the program, and the shapes and dtypes of the loaded one."""
        described: dict[str, Any] = _ask(self._child, [self._load, ("describe", {})], self._timeout)
        return described

    def keep(self, key: int, array: np.ndarray[Any, Any], forget: list[int]) -> None:
        """Store the content of a state in the child, and forget others."""
        request = ("keep", {"key": key, "array": array, "forget": forget})
        _ask(self._child, [self._load, request], self._timeout)

    def fetch(self, key: int) -> np.ndarray[Any, Any]:
        """Return the content of a state in the child."""
        request = ("fetch", {"key": key})
        array: np.ndarray[Any, Any] = self._child.ask(request, self._timeout)["array"]
        return array

    def call_kept(self, inputs: Arrays, kept: dict[str, int], shapes: dict[str, Any]) -> Arrays:
        """Return the outputs of a call with states in the child.

        After a crash, the call is traced with states of zeros of the given shapes and dtypes.
        """
        try:
            reply = self._child.ask(("call", {"inputs": inputs, "states": kept}), self._timeout)
        except _Dead as dead:
            blank = {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}
            replay = ("call", {"inputs": inputs, "states": blank})
            raise _explain(dead, [self._load, replay], self._timeout) from None
        outputs: Arrays = reply["outputs"]
        return outputs

    @property
    def alive(self) -> bool:
        """Whether it can be called again."""
        return self._child.alive

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def __enter__(self) -> Isolated:
        """Return the function itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child."""
        self.close()


class Saved:
    """A context manager that gives the path of an asset that a child optimized and saved."""

    def __init__(self, source: ProgramFile, *, optimize: bool, timeout: float) -> None:
        self._request = ("save", _request(source, optimize))
        self._timeout = timeout
        self._stack = ExitStack()

    def __enter__(self) -> Path:
        """Save the asset; raise a `NativeError` if that fails."""
        with ExitStack() as stack:
            child = stack.enter_context(_Child(detailed=False))
            path = Path(_ask(child, [self._request], self._timeout)["path"])
            self._stack = stack.pop_all()
        return path

    def __exit__(self, *ended: object) -> None:
        """Remove the asset."""
        self._stack.close()


def _request(source: ProgramFile, optimize: bool) -> dict[str, Any]:
    return {
        "bytecode": str(source.bytecode) if source.bytecode else None,
        "asset": str(source.asset) if source.asset else None,
        "optimize": optimize,
        "rewrite": ir_program.REWRITE,
        "without": [ir_program.UNSOUND],
    }


def _ask(child: _Child, requests: list[tuple[str, Any]], timeout: float) -> Any:
    """Send the last request; if the child crashes, replay all requests in a traced child."""
    try:
        return child.ask(requests[-1], timeout)
    except _Dead as dead:
        raise _explain(dead, requests, timeout) from None


def _explain(dead: _Dead, requests: list[tuple[str, Any]], timeout: float) -> NativeError:
    """Replay the requests in a child that records each op, and name the op that crashed."""
    traced = dead
    with _Child(detailed=True) as again:
        try:
            for request in requests:
                again.ask(request, timeout)
        except _Dead as second:
            traced = second
        except NativeError:
            pass
    kind = NativeTimeout if dead.late else NativeError
    return kind(traced.message(dead.why, _LONGER if dead.late else _REPORT))


class _Dead(Exception):  # noqa: N818  caught here, never shown
    """The child crashed or timed out; its trace and log say at which op."""

    def __init__(self, why: str, folder: Path, *, late: bool) -> None:
        super().__init__(why)
        self.why, self.late = why, late
        trace = _lines(folder / "trace")
        self._stage = _last(trace, "stage ")
        since = trace.index(f"stage {self._stage}") if self._stage else 0
        self._op = _last(trace[since:], "op ")
        self._log = [line for line in _lines(folder / "log") if "ODIE [default]" not in line]

    def message(self, why: str, hint: str) -> str:
        """Describe the crash, with the last op and the last lines of the log."""
        at = f"\n  at    {self._op}" if self._op else ""
        log = "".join(f"\n        {line}" for line in self._log[-_TAIL:])
        return (
            f"the native code {why} while {self._stage or 'starting'}{at}"
            + (f"\n  log  {log.removeprefix(chr(10) + '       ')}" if log else "")
            + f"\n  try   {hint}"
        )


class _Child:
    """The child process and the pipes to it."""

    def __init__(self, *, detailed: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="coreai-torch-")
        command = [sys.executable, "-P", worker_path(), self._folder.name]
        self._process = subprocess.Popen(
            [*command, "detailed" if detailed else "plain"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C reaches the parent only
        )
        self.alive = True

    def ask(self, request: tuple[str, Any], timeout: float) -> Any:
        """Send a request and wait for the reply."""
        data = pickle.dumps(request, protocol=5)
        deadline = time.monotonic() + timeout
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_LENGTH.pack(len(data)))
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._dead() from None
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline, timeout))
        status, reply = pickle.loads(self._read(size, deadline, timeout))
        if status == "error":
            raise NativeError(f"the native code raised an error: {reply}")
        return reply

    def _read(self, size: int, deadline: float, timeout: float) -> bytes:
        assert self._process.stdout is not None
        pipe, parts = self._process.stdout.fileno(), bytearray()
        while len(parts) < size:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.alive = False
                raise _Dead(f"took more than {timeout:g} s", Path(self._folder.name), late=True)
            part = os.read(pipe, min(size - len(parts), 1 << 20))
            if not part:
                raise self._dead()
            parts += part
        return bytes(parts)

    def _dead(self) -> _Dead:
        self.alive = False
        code = self._process.wait()
        why = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        return _Dead(why, Path(self._folder.name), late=False)

    def close(self) -> None:
        """Kill the process and remove its folder."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # the reader of unwritten data is gone
                    pipe.close()
        self._folder.cleanup()

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


def worker_path() -> str:
    """Return the script that the child runs by path: as a module it would import torch."""
    return str(Path(ir_program.__file__).with_name("worker.py"))


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def _last(lines: list[str], kind: str) -> str:
    return next((x.removeprefix(kind) for x in reversed(lines) if x.startswith(kind)), "")
