"""Run a search: ask the strategy what to look at, look, and report the results to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import ArgumentTypeError
from ..numerics.bisect import Search
from .graph import Graph, Key, Operation

Strategy: TypeAlias = Callable[[Graph], Search[Key]]  # as `LevelOrderStrategy.bisection`
Look: TypeAlias = Callable[[list[Operation]], Awaitable[Mapping[Key, bool]]]


@dataclass(frozen=True)
class Found:
    """The first faults, the number of operations with a value, and the number of runs."""

    failed: list[Operation]
    looked_at: int
    runs: int


async def run_search(graph: Graph, strategy: Strategy, look: Look) -> Found:
    """Look at batches of operations until the strategy ends the search."""
    if not callable(strategy):
        raise ArgumentTypeError(
            f"strategy is {strategy!r}, not a function\n  try   pass LevelOrderStrategy.auto"
        )
    search = strategy(graph)
    seen, runs = 0, 0
    while batch := search.next_batch():
        passed = await look([graph.by_key[key] for key in batch])
        seen, runs = seen + len(passed), runs + 1
        search.report(passed)
    failed = set(search.failed())
    return Found([one for one in graph if one.key in failed], seen, runs)
