"""Calls of externalized modules in a captured graph: they are between marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from ..fx.marks import is_mark, read


def begins(mark: fx.Node) -> bool:
    """Return whether a mark begins a call."""
    return read(mark)[1] == "in"


def nodes_of_call(mark: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes between the mark that begins a call and the one that ends it."""
    end, node = (read(mark)[0], "out"), mark.next
    while node.op != "output" and not (is_mark(node) and read(node)[:2] == end):
        if not is_mark(node):
            yield node
        node = node.next


@dataclass
class Call:
    """A call that has begun; `replaced` has what its arguments are inside."""

    number: int
    place: int  # among all calls
    names: list[str] = field(default_factory=list)  # of its nodes
    replaced: dict[fx.Node, fx.Node] = field(default_factory=dict)


class Calls:
    """The calls around a position in the graph, outermost first."""

    def __init__(self) -> None:
        self.around: list[Call] = []
        self._count = 0

    def read(self, mark: fx.Node) -> Call | None:
        """Begin or end a call; return a call that began."""
        number, side, _ = read(mark)
        if side == "in":
            self.around.append(Call(number, self._count))
            self._count += 1
            return self.around[-1]
        while self.around and self.around[-1].number != number:  # the model caught an exception
            self.around.pop()
        if side == "out" and self.around:
            self.around.pop()
        return None

    @property
    def innermost(self) -> int | None:
        """The position of the innermost call in the list of all calls; None outside of calls."""
        return self.around[-1].place if self.around else None

    def inside(self, node: fx.Node) -> fx.Node:
        """Return what a node reads in place of an argument of the calls around it."""
        for call in reversed(self.around):
            if node in call.replaced:
                return call.replaced[node]
        return node


def together(graph: fx.Graph) -> dict[str, list[str]]:
    """Return, for each node inside a call, the nodes of the outermost call around it."""
    calls, found = Calls(), {}
    for node in graph.nodes:
        if is_mark(node):
            calls.read(node)
        elif node.op == "call_function" and calls.around:
            calls.around[0].names.append(node.name)
            found[node.name] = calls.around[0].names
    return found
