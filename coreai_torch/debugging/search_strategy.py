"""The order in which operations are looked at until the first faulty ones are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..numerics.bisect import BATCH, Bisection, Search, TopDown
from .graph import Graph, Key, Operation

_FEW = 40  # operations; top-down needs at most four runs for them


class SearchStrategy(Protocol):
    """Selects the operations to look at next, given the results so far."""

    def next_batch(self) -> list[Operation]:
        """Return the operations to look at in the next run; an empty list ends the search."""
        ...

    def report(self, passed: Mapping[Key, bool]) -> None:
        """Take in which operations of the last batch passed; those without a value are absent."""
        ...

    def failed(self) -> list[Operation]:
        """Return the failing operations that depend on no other one known to fail."""
        ...


class LevelOrderStrategy:
    """Strategies that go by level: the length of the longest path from the inputs."""

    @staticmethod
    def bisection(graph: Graph, batch_size: int = BATCH) -> SearchStrategy:
        """Narrow down to one first fault, in runs that grow with the logarithm of the graph.

        Everything that a passing operation depends on is taken to pass, so a fault that a later
        operation hides, such as a NaN before a `where`, may be missed.
        """
        return _OnGraph(graph, Bisection(_level_order(graph), graph.inputs_of, batch_size))

    @staticmethod
    def top_down(graph: Graph, batch_size: int = BATCH) -> SearchStrategy:
        """Look at level after level, up to the first batch with a fault; misses none."""
        return _OnGraph(graph, TopDown(_level_order(graph), graph.inputs_of, batch_size))

    @staticmethod
    def auto(graph: Graph, batch_size: int = BATCH) -> SearchStrategy:
        """Go top-down in a small graph, and bisect a large one."""
        small = len(graph) <= _FEW
        choose = LevelOrderStrategy.top_down if small else LevelOrderStrategy.bisection
        return choose(graph, batch_size)


class _OnGraph:
    """A search over keys, as a strategy over the operations of a graph."""

    def __init__(self, graph: Graph, search: Search[Key]) -> None:
        self._graph, self._search = graph, search

    def next_batch(self) -> list[Operation]:
        """Return the operations of the next batch."""
        return [self._graph.by_key[key] for key in self._search.next_batch()]

    def report(self, passed: Mapping[Key, bool]) -> None:
        """Pass the results on."""
        self._search.report(passed)

    def failed(self) -> list[Operation]:
        """Return the first faults in the order of the graph."""
        keys = set(self._search.failed())
        return [operation for operation in self._graph if operation.key in keys]


def _level_order(graph: Graph) -> list[Key]:
    return [operation.key for level in graph.levels for operation in level]
