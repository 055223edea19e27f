"""Find the first faulty node of a graph by looking at the values of a few nodes at a time.

Both searches work on any hashable nodes: FX nodes, or the keys of operations. The caller runs the
program: `while batch := search.next_batch(): search.report(look(batch))`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

BATCH = 10  # nodes whose values are read in one run

Node = TypeVar("Node")  # hashable


class Search(Protocol[Node]):
    """A search that selects the nodes to look at next."""

    def next_batch(self) -> list[Node]:
        """Return the nodes to look at in the next run; an empty list ends the search."""
        ...

    def report(self, passed: Mapping[Node, bool]) -> None:
        """Take in which nodes of the last batch passed; nodes without a value are absent."""
        ...

    def failed(self) -> list[Node]:
        """Return the failing nodes that depend on no other node known to fail."""
        ...


def ancestors(ends: Iterable[Node], inputs: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return the nodes `ends` and all nodes that they depend on."""
    seen: set[Node] = set()
    stack = list(ends)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(inputs(node))
    return seen


class TopDown(Generic[Node]):
    """Look at all nodes in order, up to the first batch with a fault; misses none."""

    def __init__(
        self,
        ordered: Sequence[Node],
        inputs: Callable[[Node], Iterable[Node]],
        batch_size: int = BATCH,
    ) -> None:
        self._inputs, self._size = inputs, _check_size(batch_size)
        self._ordered = self._left = list(ordered)
        self._bad: set[Node] = set()

    def next_batch(self) -> list[Node]:
        """Return the next nodes in order, or none after a fault."""
        if self._bad:
            return []
        batch, self._left = self._left[: self._size], self._left[self._size :]
        return batch

    def report(self, passed: Mapping[Node, bool]) -> None:
        """Record the nodes that fail."""
        self._bad |= {node for node, ok in passed.items() if not ok}

    def failed(self) -> list[Node]:
        """Return the failing nodes that depend on no other failing node."""
        return [
            node
            for node in self._ordered
            if node in self._bad and not (ancestors([node], self._inputs) - {node}) & self._bad
        ]


class Bisection(Generic[Node]):
    """Narrow down to one first fault, in a number of runs that grows with the graph's logarithm.

    Everything that a passing node depends on is taken to pass; everything behind the first failing
    node is left out. So a fault that a later node hides, such as a NaN before a `where`, may be
    missed.
    """

    def __init__(
        self,
        ordered: Sequence[Node],
        inputs: Callable[[Node], Iterable[Node]],
        batch_size: int = BATCH,
    ) -> None:
        """Search `ordered`, which lists each node after its inputs."""
        self._inputs, self._size = inputs, _check_size(batch_size)
        self._ordered = list(ordered)
        self._suspects = set(self._ordered)
        self._asked: list[Node] = []
        self._found: Node | None = None

    def next_batch(self) -> list[Node]:
        """Return suspects at even distances, the last suspect among them."""
        self._asked = _spread([n for n in self._ordered if n in self._suspects], self._size)
        return self._asked

    def report(self, passed: Mapping[Node, bool]) -> None:
        """Keep the suspects before the first fault that no passing node depends on."""
        cleared = ancestors((node for node, ok in passed.items() if ok), self._inputs)
        self._suspects -= cleared.union(self._asked)
        bad = next((node for node in self._asked if not passed.get(node, True)), None)
        if bad is not None:
            before = ancestors([bad], self._inputs)
            self._found, self._suspects = bad, self._suspects & before

    def failed(self) -> list[Node]:
        """Return the one node that the search narrowed down to, if any."""
        return [self._found] if self._found is not None else []


def _check_size(batch_size: int) -> int:
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, but a batch needs at least one operation")
    return batch_size


def _spread(nodes: Sequence[Node], count: int) -> list[Node]:
    """Return up to `count` nodes at even distances, the last node among them."""
    count = min(count, len(nodes))
    return [nodes[(i + 1) * len(nodes) // count - 1] for i in range(count)]
