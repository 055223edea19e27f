"""Measure the time of a program, of its modules and of its operations."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from coreai.runtime import NDArray, Profiler

from ..asset import reading
from ..errors import ConversionError
from ..numerics.arrays import array
from ..stopwatch import call_seconds, timed_calls
from .graph import enclosing_modules, operation_ids
from .inspector import CoreAIInspector, Inputs
from .runtime import Executed, running

_WARM_UP = 3  # calls before the timed ones
_SHOWN = 10  # rows of a table


@dataclass(frozen=True)
class OperationTiming:
    """The average time of an operation in a call; `calls` counts its executed steps."""

    operation_id: int
    op: str
    module: str
    milliseconds: float
    calls: float


@dataclass(frozen=True)
class ModuleTiming:
    """The average time of a module in a call, submodules included.

    The module with an empty name is the whole model. `share` is relative to all operations.
    """

    module: str
    milliseconds: float
    share: float
    operations: int


class ModuleTimings(list[ModuleTiming]):
    """The times of modules, slowest first: a list that can also be asked by module name."""

    def __getitem__(self, key: Any) -> Any:
        """Return the timing of a module by its name, or by its place."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        found = {timing.module: timing for timing in self}
        return found[key]

    def __contains__(self, key: object) -> bool:
        return key in self.keys() if isinstance(key, str) else super().__contains__(key)

    def keys(self) -> list[str]:
        """Return the names of the modules."""
        return [timing.module for timing in self]

    def values(self) -> list[ModuleTiming]:
        """Return the timings."""
        return list(self)

    def items(self) -> list[tuple[str, ModuleTiming]]:
        """Return the timings with the names of the modules."""
        return [(timing.module, timing) for timing in self]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the timing of a module, or the default."""
        return next((timing for timing in self if timing.module == key), default)


@dataclass(frozen=True)
class BenchmarkResult:
    """The times of calls, and of operations in further calls under the profiler.

    The profiler costs each operation some microseconds, so small ones look slower than they are.
    """

    seconds: tuple[float, ...]  # of each call
    operations: tuple[OperationTiming, ...]  # slowest first
    function: str = "main"  # the entry point that was called

    @property
    def median_ms(self) -> float:
        """The median time of a call in milliseconds."""
        return 1e3 * statistics.median(self.seconds)

    def get_module_timings(self) -> ModuleTimings:
        """Return the times of the modules, slowest first; `timings["encoder"]` works too."""
        spent: dict[str, float] = defaultdict(float)
        count: dict[str, int] = defaultdict(int)
        for timing in self.operations:
            for module in enclosing_modules(timing.module):
                spent[module] += timing.milliseconds
                count[module] += 1
        total = spent.get("") or 1.0
        rows = (ModuleTiming(m, ms, ms / total, count[m]) for m, ms in spent.items())
        return ModuleTimings(sorted(rows, key=lambda row: (-row.milliseconds, row.module)))

    def write_summary(self, stream: IO[str]) -> None:
        """Write the times of calls and of the slowest modules and operations as text."""
        runs = sorted(1e3 * s for s in self.seconds)
        late = runs[math.ceil(0.9 * len(runs)) - 1]
        stream.write(
            f"{self.median_ms:.3f} ms per call (median of {len(runs)}; fastest {runs[0]:.3f}, "
            f"90th percentile {late:.3f})\n\nmodules with their submodules, under the profiler\n"
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
    coreai_program: reading.Source,
    inputs: Inputs,
    num_runs: int = 50,
    function_name: str = "main",
    states: Mapping[str, Any] | None = None,
) -> BenchmarkResult:
    """Time calls on the runtime of this machine.

    On Linux the runtime is an interpreter: times are not representative of device performance.
    Another `num_runs` calls are profiled. States carry over from call to call.
    """
    if num_runs < 1:
        raise ConversionError(f"num_runs is {num_runs}, but it must be at least 1")
    program = reading.read(coreai_program)
    given, initial = CoreAIInspector(coreai_program, function_name, states=states).feeds(inputs)
    feeds = {name: NDArray(array(value)) for name, value in given.items()}
    handles = {name: NDArray(array(value)) for name, value in initial.items()}
    async with running(coreai_program, program) as session:
        function = session.load(function_name)
        counts = {"warmup": _WARM_UP, "runs": num_runs}
        seconds = await call_seconds(function, feeds, handles, **counts)
        clock = _Clock(session.executed)
        profiled = session.load(function_name, profiler=clock.profiler())
        async for number, _, _ in timed_calls(profiled, feeds, handles, **counts):
            if number == -1:
                clock.reset()
    places = {number: op for _, op, number in operation_ids(program)}
    rows = [
        OperationTiming(number, op.name, op.place.module, spent / num_runs / 1e6, calls / num_runs)
        for number, (spent, calls) in clock.spent.items()
        if (op := places.get(number)) is not None
    ]
    rows.sort(key=lambda row: -row.milliseconds)
    return BenchmarkResult(tuple(seconds), tuple(rows), function_name)


class _Clock:
    """Adds up the nanoseconds of executed steps by operation, without those of nested steps."""

    def __init__(self, executed: Mapping[int, Executed]) -> None:
        self._executed = executed
        self._open: list[list[int]] = []  # start of each running step, and time of nested steps
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
