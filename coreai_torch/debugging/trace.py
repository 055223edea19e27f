"""Record the steps of calls as a trace in the trace event format, which Perfetto opens."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coreai.runtime import NDArray, Profiler

from ..asset import reading
from ..asset.contents import short_name
from ..asset.reading import Op, Program
from ..errors import ConversionError
from ..numerics.arrays import array
from ..stopwatch import timed_calls
from .graph import operation_ids
from .inspector import CoreAIInspector, Inputs
from .runtime import Executed, running

_WARM_UP = 3  # calls before the recorded ones
_PROCESS, _THREAD = 1, 1


@dataclass(frozen=True)
class Step:
    """A step of the runtime in nanoseconds; steps may contain others."""

    operation: int
    begin: int
    end: int
    name: str = ""  # the runtime's name; an op may allocate and compute in separate steps


@dataclass(frozen=True)
class Trace:
    """The steps of recorded calls; `calls` are their begins and ends in nanoseconds."""

    program: Program
    function: str
    calls: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]

    def events(self) -> list[dict[str, Any]]:
        """Return the events: one for each call, module and op, nested by time."""
        if not self.calls:
            return []
        zero = self.calls[0][0]
        events = [_named("process_name", "coreai-torch"), _named("thread_name", self.function)]
        for number, (begin, end) in enumerate(self.calls, 1):
            events.append(_event(f"call {number}", "call", begin - zero, end - zero))
            inside = [step for step in self.steps if begin <= step.begin and step.end <= end]
            inner = _Call(self.program, self.function, zero).events(inside)
            events += sorted(inner, key=_outer_first)
        return events

    def write(self, path: Path | str) -> None:
        """Write the trace as JSON, to a temporary file that then replaces `path`."""
        path = Path(path)
        data = {"traceEvents": self.events(), "displayTimeUnit": "ms"}
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _outer_first(event: dict[str, Any]) -> tuple[float, float, bool, int]:
    """Order events as Perfetto nests them: the first of two with equal times is the outer one."""
    is_op = event["cat"] == "op"
    return event["ts"], -event["dur"], is_op, event["args"]["module"].count(".")


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": _THREAD, "args": {"name": name}}


def _event(name: str, kind: str, begin: int, end: int, **details: Any) -> dict[str, Any]:
    """Return a complete event; times of the format are microseconds."""
    event = {"name": name, "cat": kind, "ph": "X", "pid": _PROCESS, "tid": _THREAD}
    return {**event, "ts": begin / 1e3, "dur": (end - begin) / 1e3, "args": details}


@dataclass
class _Call:
    """Groups the steps of one call by module, in the order in which they ran."""

    program: Program
    function: str
    zero: int
    _open: list[tuple[str, int]] = field(default_factory=list)  # modules with their begins
    _last: int = 0

    def events(self, steps: list[Step]) -> list[dict[str, Any]]:
        ops = {number: (name, op) for name, op, number in operation_ids(self.program)}
        sites = _Sites(self.program, self.function)
        found: list[dict[str, Any]] = []
        for step in sorted(steps, key=lambda step: (step.begin, -step.end)):
            owner, op = ops[step.operation]
            module = sites.module(owner, op, step.operation)
            begin, end = step.begin - self.zero, step.end - self.zero
            if begin >= self._last:  # not inside the step before
                found += self._enter(module, begin)
                self._last = end
            details = {"module": module, "id": step.operation, "types": [str(t) for t in op.types]}
            if step.name:
                details["step"] = step.name
            if op.place.line:
                details["source"] = f"{op.place.file}:{op.place.line}"
            found.append(_event(short_name(op.name), "op", begin, end, **details))
        return [*found, *self._enter("", self._last)]

    def _enter(self, module: str, begin: int) -> Iterator[dict[str, Any]]:
        """Close the modules that ended, and open those around the next op."""
        path = module.split(".") if module else []
        same = 0
        while same < min(len(path), len(self._open)) and self._open[same][0] == path[same]:
            same += 1
        while len(self._open) > same:
            around = ".".join(name for name, _ in self._open)
            name, began = self._open.pop()
            yield _event(name, "module", began, self._last, module=around)
        self._open += [(name, begin) for name in path[same:]]


class _Sites:
    """Finds the module of an op; the ops of a called graph belong to the call that runs."""

    def __init__(self, program: Program, function: str) -> None:
        body = program.functions[function].body.ops
        self._calls = [op for op in body if op.name == "coreai.invoke"]
        self._function, self._next = function, 0
        self._current: Op | None = None
        self._ran: list[int] = []

    def module(self, owner: str, op: Op, number: int) -> str:
        if owner == self._function:
            return op.place.module
        if self._current is None or not self._continues(owner, number):
            self._advance(owner)
        self._ran.append(number)
        return self._current.place.module if self._current is not None else ""

    def _continues(self, owner: str, number: int) -> bool:
        assert self._current is not None
        again = number in self._ran[:-1]  # one op may take several steps in a row
        return self._current.attributes["callee"] == owner and not again

    def _advance(self, owner: str) -> None:
        """Go to the next call of a graph; a graph that another graph calls keeps the call."""
        for index in range(self._next, len(self._calls)):
            if self._calls[index].attributes["callee"] == owner:
                self._current, self._next = self._calls[index], index + 1
                self._ran = []
                return


async def trace_coreai_program(
    coreai_program: reading.Source,
    inputs: Inputs,
    num_runs: int = 3,
    function_name: str = "main",
    states: Mapping[str, Any] | None = None,
) -> Trace:
    """Record calls on the runtime of this machine, under the profiler.

    On Linux the runtime is an interpreter: times are not representative of device performance.
    """
    if num_runs < 1:
        raise ConversionError(f"num_runs is {num_runs}, but it must be at least 1")
    program = reading.read(coreai_program)
    given, initial = CoreAIInspector(coreai_program, function_name, states=states).feeds(inputs)
    feeds = {name: NDArray(array(value)) for name, value in given.items()}
    handles = {name: NDArray(array(value)) for name, value in initial.items()}
    calls, first = [], 0
    async with running(coreai_program, program) as session:
        recorder = _Recorder(session.executed)
        function = session.load(function_name, profiler=recorder.profiler())
        timed = timed_calls(function, feeds, handles, warmup=_WARM_UP, runs=num_runs)
        async for number, began, ended in timed:
            if number >= 0:
                calls.append(_bounds(recorder.steps[first:], began, ended))
            elif number == -1:
                recorder.steps.clear()
            first = len(recorder.steps)
    known = {number for _, _, number in operation_ids(program)}
    steps = tuple(step for step in recorder.steps if step.operation in known)
    return Trace(program, function_name, tuple(calls), steps)


def _bounds(steps: list[Step], began: int, ended: int) -> tuple[int, int]:
    """Return begin and end of a call on the profiler's clock.

    If that is not Python's clock, the call begins with its first step and ends with its last one.
    """
    if not steps:
        return began, ended
    first, last = min(step.begin for step in steps), max(step.end for step in steps)
    return (began, ended) if began <= first and last <= ended else (first, last)


class _Recorder:
    """Records the begin and end of every step that belongs to an op."""

    def __init__(self, executed: Mapping[int, Executed]) -> None:
        self._executed = executed
        self._open: list[int] = []
        self.steps: list[Step] = []

    def profiler(self) -> Profiler:
        return Profiler(lambda event: None, self._begin, self._end)

    def _begin(self, event: Any) -> int:
        self._open.append(event.timestamp)
        return len(self._open)

    def _end(self, event: Any, interval: int) -> None:
        if not self._open:
            return
        began = self._open.pop()
        step = self._executed.get(event.compile_ids.id)
        if step is not None and step.operation is not None:
            self.steps.append(Step(step.operation, began, event.timestamp, event.event_id))
