"""How long a program takes, and which of its modules and operations take it."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from coreai.runtime import NDArray, Profiler

from ..asset import reading
from ..errors import ConversionError
from ..numerics.arrays import array
from .graph import operation_ids
from .inspector import CoreAIInspector, Inputs
from .runtime import Executed, running

_WARM_UP = 3  # calls that are not counted
_SHOWN = 10  # rows of a table


@dataclass(frozen=True)
class OperationTiming:
    """What an operation took in a call, on average; `calls` counts its executed steps."""

    operation_id: int
    op: str
    module: str
    milliseconds: float
    calls: float


@dataclass(frozen=True)
class ModuleTiming:
    """What a module took in a call, on average, those within it included.

    The module without a name is the whole model. `share` is that of all operations.
    """

    module: str
    milliseconds: float
    share: float
    operations: int


@dataclass(frozen=True)
class BenchmarkResult:
    """Whole calls, timed undisturbed; and operations, timed in further calls under the profiler.

    Being watched costs each operation some microseconds, so that small ones look larger.
    """

    seconds: tuple[float, ...]  # of each call
    operations: tuple[OperationTiming, ...]  # slowest first

    @property
    def median_ms(self) -> float:
        """What a call takes."""
        return 1e3 * statistics.median(self.seconds)

    def get_module_timings(self) -> list[ModuleTiming]:
        """The modules, slowest first."""
        spent: dict[str, float] = defaultdict(float)
        count: dict[str, int] = defaultdict(int)
        for timing in self.operations:
            for module in _around(timing.module):
                spent[module] += timing.milliseconds
                count[module] += 1
        whole = spent.get("") or 1.0
        rows = (ModuleTiming(m, ms, ms / whole, count[m]) for m, ms in spent.items())
        return sorted(rows, key=lambda row: (-row.milliseconds, row.module))

    def write_summary(self, stream: IO[str]) -> None:
        """The times of calls, and of the slowest modules and operations, as text."""
        runs = sorted(1e3 * s for s in self.seconds)
        late = runs[math.ceil(0.9 * len(runs)) - 1]
        stream.write(
            f"{self.median_ms:.3f} ms a call (median of {len(runs)}; least {runs[0]:.3f}, "
            f"90 % under {late:.3f})\n\nmodules, with those within, under the profiler\n"
        )
        for module in self.get_module_timings()[:_SHOWN]:
            name = module.module or "(whole model)"
            stream.write(
                f"  {module.milliseconds:9.3f} ms {module.share:6.1%}  {name}, "
                f"{module.operations} operations\n"
            )
        stream.write("\noperations, under the profiler\n")
        for timing in self.operations[:_SHOWN]:
            place = f", {timing.module}" if timing.module else ""
            stream.write(
                f"  {timing.milliseconds:9.3f} ms  #{timing.operation_id} {timing.op}{place}\n"
            )


async def benchmark_coreai_program(
    *,
    coreai_program: reading.Source,
    inputs: Inputs,
    num_runs: int = 50,
    function_name: str = "main",
    states: Mapping[str, Any] | None = None,
) -> BenchmarkResult:
    """Time calls on this machine's run time; on Linux that is an interpreter, not a device.

    As many calls again are profiled. States live on from call to call.
    """
    if num_runs < 1:
        raise ConversionError(f"one run or more can be timed, not {num_runs}")
    program = reading.read(coreai_program)
    given, held = CoreAIInspector(coreai_program, function_name, states=states).feeds(inputs)
    feeds = {name: NDArray(array(value)) for name, value in given.items()}
    kept = {name: NDArray(array(value)) for name, value in held.items()}
    async with running(coreai_program, program) as session:
        plain = session.load(function_name)
        seconds = await _timed(plain, feeds, kept, num_runs)
        clock = _Clock(session.executed)
        watched = session.load(function_name, profiler=clock.profiler())
        await _timed(watched, feeds, kept, num_runs, before=clock.reset)
    places = {number: op for _, op, number in operation_ids(program)}
    rows = [
        OperationTiming(number, op.name, op.place.module, spent / num_runs / 1e6, calls / num_runs)
        for number, (spent, calls) in clock.spent.items()
        if (op := places.get(number)) is not None
    ]
    return BenchmarkResult(tuple(seconds), tuple(sorted(rows, key=lambda r: -r.milliseconds)))


async def _timed(
    function: Any,
    feeds: Mapping[str, NDArray],
    states: Mapping[str, NDArray],
    runs: int,
    before: Any = None,
) -> list[float]:
    """The seconds of each call after some that warm up; `before` comes between the two."""
    seconds = []
    for number in range(-_WARM_UP, runs):
        if number == 0 and before is not None:
            before()
        began = time.perf_counter()
        await (function(feeds, state=states) if states else function(feeds))
        if number >= 0:
            seconds.append(time.perf_counter() - began)
    return seconds


class _Clock:
    """Adds up the nanoseconds of executed steps by operation, less those of steps within."""

    def __init__(self, executed: Mapping[int, Executed]) -> None:
        self._executed = executed
        self._open: list[list[int]] = []  # when each running step began, and what inner ones took
        self.reset()

    def reset(self) -> None:
        self.spent: dict[int, tuple[int, int]] = {}

    def profiler(self) -> Profiler:
        return Profiler(lambda event: None, self._begin, self._end)

    def _begin(self, event: Any) -> int:
        self._open.append([event.timestamp, 0])
        return len(self._open)

    def _end(self, event: Any, interval: int) -> None:
        if not self._open:
            return
        began, inner = self._open.pop()
        took = event.timestamp - began
        if self._open:
            self._open[-1][1] += took
        step = self._executed.get(event.compile_ids.id)
        if step is not None and step.operation is not None:
            spent, calls = self.spent.get(step.operation, (0, 0))
            self.spent[step.operation] = (spent + took - inner, calls + 1)


def _around(module: str) -> list[str]:
    """A module and all that hold it: `a.b` is in `a`, and `a` in the model."""
    parts = module.split(".") if module else []
    return ["", *(".".join(parts[: n + 1]) for n in range(len(parts)))]
