"""Finds the calls of externalized modules between the marks of a graph."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from .mark import boundary
from .spec import Match

Label = tuple[str, fx.Node]  # a node, and what it is called at the boundary


def is_mark(node: fx.Node) -> bool:
    """Whether a node is a mark: it computes nothing."""
    return node.op == "call_function" and node.target is boundary


def is_number(node: fx.Node) -> bool:
    """Whether a node computes a size from sizes.

    The exporter computes equal sizes once, wherever they first occur, so that such a node says
    nothing of where it belongs.
    """
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target.name()).startswith("aten::sym_")
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    symbolic = torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool
    return isinstance(node.meta.get("val"), symbolic)


@dataclass
class Region:
    """One call of one externalized module."""

    match: Match
    inputs: list[Label]  # what was passed
    left: list[Label] = field(default_factory=list)  # the same when the call was over
    outputs: list[Label] = field(default_factory=list)
    body: dict[fx.Node, None] = field(default_factory=dict)  # in order, nested calls included
    nested: list[Region] = field(default_factory=list)
    _live: Set[fx.Node] = frozenset()  # what is asked for, in the whole graph

    @property
    def ends(self) -> list[fx.Node]:
        """What the declaration names: needed as long as anything of the call is."""
        return [node for _, node in (*self.inputs, *self.outputs)]

    def take(self, node: fx.Node) -> None:
        """Add a node that was traced in the call; a size only if it comes from a tensor here."""
        if not is_number(node) or any(n in self.body for n in node.all_input_nodes):
            self.body[node] = None

    def kept(self, live: Set[fx.Node]) -> Region | None:
        """The region without what nothing asks for; None if that is all of it."""
        body = {node: None for node in self.body if node in live}
        if not body:
            return None
        nested = [inner for n in self.nested if (inner := n.kept(live))]
        return Region(self.match, self.inputs, self.left, self.outputs, body, nested, live)

    def escaping(self) -> list[fx.Node]:
        """The nodes inside that are read outside, in order."""
        return [
            node
            for node in self.body
            if any(user in self._live and user not in self.body for user in node.users)
        ]

    def operands(self) -> list[fx.Node]:
        """The nodes outside that are read inside, in order of use."""
        used = [n for node in self.body for n in node.all_input_nodes]
        used += [node for region in (self, *self.all_nested()) for node in region.ends]
        return [n for n in dict.fromkeys(used) if n not in self.body]

    def all_nested(self) -> Iterator[Region]:
        """The calls inside this one, at any depth."""
        for region in self.nested:
            yield region
            yield from region.all_nested()


def regions(nodes: Iterable[fx.Node], found: Sequence[Match]) -> list[Region]:
    """The calls in a graph; those inside another are held by it."""
    done: list[Region] = []
    opened: list[Region] = []
    for node in nodes if found else ():
        if is_mark(node):
            _bracket(node, found, opened, done)
        elif node.op == "call_function":
            for region in opened:
                region.take(node)
    return done


def _bracket(
    node: fx.Node, found: Sequence[Match], opened: list[Region], done: list[Region]
) -> None:
    number, side, *names = str(node.args[1]).split(" ")
    labels: list[Label] = list(zip(names, _sources(node), strict=True))
    match = found[int(number)]
    if side == "in":
        opened.append(Region(match, labels))
        return
    # A call that ended in an exception, which the model caught, is never closed.
    while opened and opened[-1].match is not match:
        opened.pop()
    if opened and side == "left":
        opened[-1].left = labels
    elif opened:
        region = opened.pop()
        region.outputs = labels
        (opened[-1].nested if opened else done).append(region)


def _sources(mark: fx.Node) -> Any:
    return mark.args[0]
