"""Measure times."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any


class Stopwatch:
    """Measures from its construction or its last lap; of wall time, if no other clock is given."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._began = clock, clock()

    @property
    def seconds(self) -> float:
        """The seconds since the beginning."""
        return self._clock() - self._began

    def lap(self) -> float:
        """Return the seconds since the beginning, and begin again."""
        began, self._began = self._began, self._clock()
        return self._began - began


async def timed_calls(
    function: Any, inputs: Mapping[str, Any], states: Mapping[str, Any], *, warmup: int, runs: int
) -> AsyncIterator[tuple[int, int, int]]:
    """Call a function of the runtime; yield the number of each call, its begin and its end in ns.

    The numbers of calls that warm up are negative.
    """
    for number in range(-warmup, runs):
        began = time.perf_counter_ns()
        await (function(inputs, state=states) if states else function(inputs))
        yield number, began, time.perf_counter_ns()


async def call_seconds(
    function: Any, inputs: Mapping[str, Any], states: Mapping[str, Any], *, warmup: int, runs: int
) -> list[float]:
    """Return the seconds of each call after those that warm up."""
    calls = timed_calls(function, inputs, states, warmup=warmup, runs=runs)
    return [(ended - began) / 1e9 async for number, began, ended in calls if number >= 0]
