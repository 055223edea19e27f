"""Run a program in a worker process, so that a crash of the native code is an exception here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import NativeError, NativeTimeout
from ..sandbox.child import SECONDS, Child, Ended, Limits

WORKER = "coreai_torch.asset.worker:serve"
_REPORT = "report this with the model; the op named above ran last"
_LONGER = "pass a larger timeout, or smaller inputs; the op named above took the time"
_NOISE = "ODIE [default]"  # in what the runtime prints about each call
Arrays = dict[str, np.ndarray[Any, Any]]
_Request = tuple[str, dict[str, Any]]


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


class Isolated(AbstractContextManager["Isolated"]):
    """A function of a program, loaded in a worker process."""

    def __init__(
        self,
        source: ProgramFile,
        *,
        entrypoint: str = "main",
        optimize: bool = False,
        timeout: float = 600.0,
    ) -> None:
        """Start the worker and load the function; raise a `NativeError` if that fails."""
        self._timeout = timeout
        self._worker = _Worker()
        try:
            self.load(source, entrypoint=entrypoint, optimize=optimize)
        except BaseException:
            self._worker.close()
            raise

    def load(
        self, source: ProgramFile, *, entrypoint: str = "main", optimize: bool = False
    ) -> None:
        """Load a program in place of the current one, in a new worker if this one ended."""
        if not self.alive:
            self._worker = _Worker()
        self._load = ("load", {**_described(source, optimize), "entrypoint": entrypoint})
        self.ports = Ports(**_ask(self._worker, [self._load], self._timeout))

    def call(self, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs, and the states after the call."""
        reply = self._ask("call", inputs=inputs, states=states)
        return reply["outputs"], reply["states"]

    def timed(self, inputs: Arrays, states: Arrays, *, warmup: int, runs: int) -> list[float]:
        """Return the seconds of each of several calls, without the transfer to the worker."""
        return list(self._ask("timed", inputs=inputs, states=states, warmup=warmup, runs=runs))

    def describe(self) -> dict[str, Any]:
        """Return the functions of the program, and the shapes and dtypes of the loaded one."""
        return dict(self._ask("describe"))

    def keep(self, key: int, array: np.ndarray[Any, Any], forget: list[int]) -> None:
        """Store the content of a state in the worker, and forget others."""
        self._ask("keep", key=key, array=array, forget=forget)

    def fetch(self, key: int) -> np.ndarray[Any, Any]:
        """Return the content of a state in the worker."""
        return np.asarray(self._ask("fetch", key=key))

    def call_kept(self, inputs: Arrays, kept: dict[str, int], shapes: dict[str, Any]) -> Arrays:
        """Return the outputs of a call with states in the worker.

        After a crash, the call is traced with states of zeros of the given shapes and dtypes.
        """
        blank = {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}
        traced = ("call", {"inputs": inputs, "states": blank})
        outputs: Arrays = self._ask("call", traced, inputs=inputs, states=kept)["outputs"]
        return outputs

    def _ask(self, kind: str, traced: _Request | None = None, **given: Any) -> Any:
        request = (kind, given)
        return _ask(self._worker, [self._load, request], self._timeout, traced)

    @property
    def alive(self) -> bool:
        """Whether it can be called again."""
        return self._worker.child.alive

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def __exit__(self, *ended: object) -> None:
        """End the worker."""
        self.close()


@contextmanager
def saved(source: ProgramFile, *, optimize: bool, timeout: float) -> Iterator[Path]:
    """Give the path of an asset that a worker optimized and saved; remove it at the end."""
    with _Worker() as worker:
        yield Path(_ask(worker, [("save", _described(source, optimize))], timeout))


def _described(source: ProgramFile, optimize: bool) -> dict[str, Any]:
    return {"bytecode": source.bytecode, "asset": source.asset, "optimized": optimize}


def _ask(
    worker: _Worker, requests: list[_Request], timeout: float, traced: _Request | None = None
) -> Any:
    """Send the last request; after a crash, replay all in a worker that names the op."""
    try:
        return worker.ask(requests[-1], timeout)
    except Ended as dead:
        last = [*requests[:-1], traced or requests[-1]]
        raise _explained(dead, last, timeout) from None


def _explained(dead: Ended, requests: list[_Request], timeout: float) -> NativeError:
    """Replay the requests in a worker that records each op, and name the op that crashed."""
    traced = dead
    with _Worker(detailed=True) as again:
        try:
            for request in requests:
                again.ask(request, timeout)
        except Ended as second:
            traced = second
        except NativeError:
            pass
    traced.why, late = dead.why, dead.limit == SECONDS
    kind, hint = (NativeTimeout, _LONGER) if late else (NativeError, _REPORT)
    return kind(traced.message(traced.when, hint, without=_NOISE))


class _Worker(AbstractContextManager["_Worker"]):
    """The process with its folder of temporary files."""

    def __init__(self, *, detailed: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="coreai-torch-")
        self.child = Child.spawn(WORKER, self._folder.name, detailed)
        self._stage = self._op = ""

    def ask(self, request: _Request, timeout: float) -> Any:
        """Send a request and wait for the reply."""
        limits = Limits(seconds=timeout)
        self.child.send(request)
        try:
            while (message := self.child.receive(limits))[0] not in ("ok", "error"):
                kind, what = message  # how far it came
                self._stage, self._op = (what, "") if kind == "stage" else (self._stage, what)
        except Ended as ended:
            at = f"\n  at    {self._op}" if self._op else ""
            ended.when = f"while {self._stage or 'starting'}{at}"
            self.close()
            raise
        status, reply = message
        if status == "error":
            raise NativeError(f"the native code raised an error: {reply}")
        return reply

    def close(self) -> None:
        """Kill the process and remove its folder."""
        self.child.close()
        self._folder.cleanup()

    def __exit__(self, *ended: object) -> None:
        self.close()
