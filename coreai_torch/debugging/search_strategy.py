"""The order in which operations are looked at until the first faulty ones are found."""

from __future__ import annotations

from ..numerics.bisect import BATCH, Bisection, Search, TopDown
from .graph import Graph, Key

_FEW = 40  # operations; top-down needs at most four runs for them


class LevelOrderStrategy:
    """Strategies that go by level: the length of the longest path from the inputs."""

    @staticmethod
    def bisection(graph: Graph, batch_size: int = BATCH) -> Search[Key]:
        """Narrow down to one first fault, in runs that grow with the logarithm of the graph.

        Everything that a passing operation depends on is taken to pass, so a fault that a later
        operation hides, such as a NaN before a `where`, may be missed.
        """
        return Bisection(_level_order(graph), graph.inputs_of, batch_size)

    @staticmethod
    def top_down(graph: Graph, batch_size: int = BATCH) -> Search[Key]:
        """Look at level after level, up to the first batch with a fault; misses none."""
        return TopDown(_level_order(graph), graph.inputs_of, batch_size)

    @staticmethod
    def auto(graph: Graph, batch_size: int = BATCH) -> Search[Key]:
        """Go top-down in a small graph, and bisect a large one."""
        small = len(graph) <= _FEW
        choose = LevelOrderStrategy.top_down if small else LevelOrderStrategy.bisection
        return choose(graph, batch_size)


def _level_order(graph: Graph) -> list[Key]:
    return [operation.key for level in graph.levels for operation in level]
