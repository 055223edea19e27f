"""Runs a search: asks the strategy what to look at, and tells it what was seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import ArgumentTypeError
from .graph import Graph, Key, Operation
from .search_strategy import SearchStrategy

Strategy: TypeAlias = Callable[[Graph], SearchStrategy]  # as `LevelOrderStrategy.bisection`
Look: TypeAlias = Callable[[list[Operation]], Awaitable[Mapping[Key, bool]]]


@dataclass(frozen=True)
class Found:
    """The first faults, how many operations had a value, and in how many runs."""

    failed: list[Operation]
    looked_at: int
    runs: int


async def searched(graph: Graph, strategy: Strategy, look: Look) -> Found:
    """Look until the strategy has seen enough."""
    if not callable(strategy):
        raise ArgumentTypeError(f"strategy is {strategy!r}\n  try   LevelOrderStrategy.auto")
    search = strategy(graph)
    seen, runs = 0, 0
    while batch := search.next_batch():
        passed = await look(batch)
        seen, runs = seen + len(passed), runs + 1
        search.report(passed)
    return Found(search.failed(), seen, runs)
