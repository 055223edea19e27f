"""In which order operations are looked at until the first faulty ones are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .graph import Graph, Key, Operation

_BATCH = 10  # operations whose values are asked for in one run
_FEW = 40  # a graph that top-down needs four runs for at most


class SearchStrategy(Protocol):
    """Says what to look at next; what it was told before narrows the choice."""

    def next_batch(self) -> list[Operation]:
        """The operations to look at in the next run; none when the search is over."""
        ...

    def report(self, passed: Mapping[Key, bool]) -> None:
        """Tell which of the last batch passed; one without a value is left out."""
        ...

    def failed(self) -> list[Operation]:
        """The failing operations before which none is known to fail."""
        ...


class LevelOrderStrategy:
    """Strategies that go by level: the longest way to an operation from the inputs."""

    @staticmethod
    def bisection(graph: Graph, batch_size: int = _BATCH) -> SearchStrategy:
        """Narrow down to one first fault, in runs that grow with the logarithm of the graph.

        All that a passing operation depends on is taken to pass: a fault that a later operation
        hides, as a NaN behind a `where`, may be missed.
        """
        return _Bisection(graph, batch_size)

    @staticmethod
    def top_down(graph: Graph, batch_size: int = _BATCH) -> SearchStrategy:
        """Look at level after level, up to the first batch with a fault; none is missed."""
        return _TopDown(graph, batch_size)

    @staticmethod
    def auto(graph: Graph, batch_size: int = _BATCH) -> SearchStrategy:
        """Top-down for a small graph, bisection for a large one."""
        kind = _TopDown if len(graph) <= _FEW else _Bisection
        return kind(graph, batch_size)


def _checked(batch_size: int) -> int:
    if batch_size < 1:
        raise ValueError(f"a batch holds one operation or more, not {batch_size}")
    return batch_size


class _TopDown:
    def __init__(self, graph: Graph, batch_size: int) -> None:
        self._graph, self._size = graph, _checked(batch_size)
        self._left = _in_level_order(graph)
        self._bad: set[Key] = set()

    def next_batch(self) -> list[Operation]:
        """What comes next, until something fails."""
        if self._bad:
            return []
        batch, self._left = self._left[: self._size], self._left[self._size :]
        return batch

    def report(self, passed: Mapping[Key, bool]) -> None:
        """Note what fails."""
        self._bad |= {key for key, ok in passed.items() if not ok}

    def failed(self) -> list[Operation]:
        """Those that fail and depend on none that does."""
        return [
            operation
            for operation in self._graph
            if operation.key in self._bad
            and not (self._graph.before([operation.key]) - {operation.key}) & self._bad
        ]


class _Bisection:
    def __init__(self, graph: Graph, batch_size: int) -> None:
        self._graph, self._size = graph, _checked(batch_size)
        self._ordered = _in_level_order(graph)
        self._suspects = {operation.key for operation in self._ordered}
        self._asked: list[Operation] = []
        self._found: Operation | None = None

    def next_batch(self) -> list[Operation]:
        """Suspects at even distances, the last among them."""
        left = [operation for operation in self._ordered if operation.key in self._suspects]
        self._asked = _spread(left, self._size)
        return self._asked

    def report(self, passed: Mapping[Key, bool]) -> None:
        """Keep what lies before the first fault and not before what passes."""
        self._suspects -= {operation.key for operation in self._asked}
        self._suspects -= self._graph.before(key for key, ok in passed.items() if ok)
        bad = next((o for o in self._asked if not passed.get(o.key, True)), None)
        if bad is not None:
            self._found = bad
            self._suspects &= self._graph.before([bad.key])

    def failed(self) -> list[Operation]:
        """The one it narrowed down to."""
        return [self._found] if self._found is not None else []


def _in_level_order(graph: Graph) -> list[Operation]:
    return [operation for level in graph.levels for operation in level]


def _spread(operations: Sequence[Operation], count: int) -> list[Operation]:
    count = min(count, len(operations))
    return [operations[(i + 1) * len(operations) // count - 1] for i in range(count)]
