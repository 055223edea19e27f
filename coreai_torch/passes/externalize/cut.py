"""Find the calls of externalized modules between the marks of a graph."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx

from ...errors import module_path
from ...fx import marks
from ...torch_compat import HigherOrderOperator, OpOverload
from .spec import Externalized

Label = tuple[str, fx.Node]  # the name at the boundary, and the node


def is_number(node: fx.Node) -> bool:
    """Whether a node computes a size from sizes.

    The exporter computes equal sizes once, wherever they first occur, so that such a node says
    nothing of where it belongs.
    """
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if isinstance(node.target, OpOverload):
        return str(node.target.name()).startswith("aten::sym_")
    if isinstance(node.target, HigherOrderOperator):
        return False
    symbolic = torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool
    return isinstance(node.meta.get("val"), symbolic)


@dataclass
class Outside:
    """The values that a region reads from outside, by kind."""

    sizes: dict[fx.Node, tuple[fx.Node, int]] = field(default_factory=dict)  # of its arguments
    numbers: dict[fx.Node, None] = field(default_factory=dict)  # computed again, in order
    nodes: dict[fx.Node, None] = field(default_factory=dict)  # passed in, or stored as a constant

    def __contains__(self, node: fx.Node) -> bool:
        return node in self.sizes or node in self.numbers or node in self.nodes


@dataclass
class Region:
    """One call of one externalized module."""

    match: Externalized
    inputs: list[Label]  # the arguments
    own: list[Label] = field(default_factory=list)  # the buffers before the call
    left: list[Label] = field(default_factory=list)  # buffers and arguments after it
    outputs: list[Label] = field(default_factory=list)
    body: dict[fx.Node, None] = field(default_factory=dict)  # in order, nested calls included
    weights: dict[fx.Node, str] = field(default_factory=dict)  # unpacked before the call
    nested: list[Region] = field(default_factory=list)
    _live: Set[fx.Node] = frozenset()  # the live nodes of the graph

    @property
    def ends(self) -> list[fx.Node]:
        """The nodes that the declaration names; they are live if any node of the call is."""
        return [node for _, node in (*self.inputs, *self.outputs)]

    def take(self, node: fx.Node) -> None:
        """Add a node that was traced in the call; a size only if it comes from a tensor here."""
        weight = self._unpacked(node)
        if weight:
            self.weights[node] = weight
        elif not is_number(node) or any(n in self.body for n in node.all_input_nodes):
            self.body[node] = None

    def _unpacked(self, node: fx.Node) -> str:
        """Return the name of the compressed weight that a node unpacks, or an empty string.

        It is an operand of a composite like any other weight. If it were unpacked within, its
        parts would be operands, and integers of 4 bits take 8 as those.
        """
        path = f".{module_path(node)}."
        packed = getattr(node.target, "namespace", "") == "coreai"
        if self.match.composite is None or not packed or ".parametrizations." not in path:
            return ""
        if any(n in self.body for n in node.all_input_nodes):
            return ""
        inner = path.partition(f".{self.match.path}.")[2] if self.match.path else path[1:]
        before, _, rest = inner.partition("parametrizations.")
        return before + rest.partition(".")[0]

    def kept(self, live: Set[fx.Node]) -> Region | None:
        """Return the region without dead nodes; None if all are dead."""
        body = {node: None for node in self.body if node in live}
        if not body:
            return None
        nested = [inner for n in self.nested if (inner := n.kept(live))]
        return replace(self, body=body, nested=nested, _live=live)

    def escaping(self) -> list[fx.Node]:
        """Return the nodes inside that are read outside, in order."""
        return [
            node
            for node in self.body
            if any(user in self._live and user not in self.body for user in node.users)
        ]

    def outside(self) -> Outside:
        """Return the values from outside that are read inside, in order of use."""
        used = [n for node in self.body for n in node.all_input_nodes]
        used += [node for region in (self, *self.all_nested()) for node in region.ends]
        found = Outside()
        for node in used:
            self._meet(node, found)
        return found

    def _meet(self, node: fx.Node, found: Outside) -> None:
        if node in self.body or node in found:
            return
        place = self._extent(node)
        if place is not None:
            found.sizes[node] = place
        elif is_number(node) and not isinstance(node.target, OpOverload):
            for needed in node.all_input_nodes:
                self._meet(needed, found)
            found.numbers[node] = None
        else:
            found.nodes[node] = None

    def _extent(self, node: fx.Node) -> tuple[fx.Node, int] | None:
        """Return the argument and axis whose size a symbolic number is, else None."""
        number = node.meta.get("val")
        if not isinstance(number, torch.SymInt):
            return None
        for _, source in self.inputs:
            for axis, extent in enumerate(source.meta["val"].shape):
                if isinstance(extent, torch.SymInt) and extent.node.expr == number.node.expr:
                    return source, axis
        return None

    def all_nested(self) -> Iterator[Region]:
        """Yield the calls inside this one, at any depth."""
        for region in self.nested:
            yield region
            yield from region.all_nested()


def regions(nodes: Iterable[fx.Node], found: Sequence[Externalized]) -> list[Region]:
    """Return the outermost calls in a graph; each one lists the calls nested in it."""
    brackets = _Brackets(found)
    for node in nodes if found else ():
        if marks.is_mark(node):
            brackets.read(node)
        elif node.op == "call_function":
            for region in brackets.opened:
                region.take(node)
    return brackets.closed()


class _Brackets:
    """The calls that are open at a position in the graph, and the closed ones."""

    def __init__(self, found: Sequence[Externalized]) -> None:
        self._found = found
        self._done: list[Region] = []
        self.opened: list[Region] = []

    def read(self, mark: fx.Node) -> None:
        """Open or close a call, or record the names of its tensors."""
        number, side, names = marks.read(mark)
        tensors: Any = mark.args[0]
        labels: list[Label] = list(zip(names, tensors, strict=True))
        match = self._found[number]
        if side == "in":
            self.opened.append(Region(match, labels))
            return
        while self.opened[-1].match is not match:
            self._give_up()
        region = self.opened[-1]
        if side == "own":
            region.own = labels
        elif side == "left":
            region.left = labels
        else:
            region.outputs = labels
            self.opened.pop()
            self._around().append(region)

    def closed(self) -> list[Region]:
        """Return all calls that were closed."""
        while self.opened:
            self._give_up()
        return self._done

    def _around(self) -> list[Region]:
        return self.opened[-1].nested if self.opened else self._done

    def _give_up(self) -> None:
        """Drop the innermost call: it raised an exception that the model caught."""
        broken = self.opened.pop()
        self._around().extend(broken.nested)


def idle(calls: Sequence[fx.Node], cut: Sequence[Region]) -> set[fx.Node]:
    """Return the sizes that only regions read; each region computes them again."""
    inside = {node for region in cut for node in region.body}
    passed = {node for region in cut for node in region.outside().nodes}
    unread: set[fx.Node] = set()
    lowered = set(calls)
    for node in reversed(calls):
        if is_number(node) and node not in inside and node not in passed:
            readers = [n for n in node.users if n in lowered or n.op == "output"]
            if all(n in inside or n in unread for n in readers):
                unread.add(node)
    return unread
