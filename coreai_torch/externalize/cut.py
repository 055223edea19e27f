"""Finds the regions between the marks in an exported graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import torch.fx as fx

from ..errors import ExternalizeError
from .mark import boundary
from .spec import Match

Stack = tuple[tuple[str, str], ...]  # the module calls a node was traced in, outermost first


def is_mark(node: fx.Node) -> bool:
    """Whether a node is a boundary mark."""
    return node.op == "call_function" and node.target is boundary._opoverload


class Tag(NamedTuple):
    """What a mark says: of which match, on which side, under which name."""

    match: int
    side: str
    name: str


def tag(node: fx.Node) -> Tag:
    """Read a mark."""
    match, side, name = str(node.args[1]).split(" ", 2)
    return Tag(int(match), side, name)


@dataclass
class Region:
    """One call of one externalized module."""

    match: Match
    calls: Stack
    inputs: list[fx.Node] = field(default_factory=list)  # the marks on the way in
    outputs: list[fx.Node] = field(default_factory=list)  # the marks on the way out
    body: list[fx.Node] = field(default_factory=list)  # all nodes inside, nested regions too
    lowered: Set[fx.Node] = frozenset()  # the nodes of the graph that become something
    _past: set[fx.Node] = field(default_factory=set)

    @property
    def last(self) -> fx.Node:
        """The first mark on the way out, or the last node inside: all before it is needed."""
        return self.outputs[0] if self.outputs else self.body[-1]

    def take(self, node: fx.Node) -> None:
        """Add a node of the call, unless it comes after the boundary, as copying back does."""
        if any(n in self._past or n in self.outputs for n in node.all_input_nodes):
            self._past.add(node)
        else:
            self.body.append(node)

    def within(self, outer: Region) -> bool:
        """Whether this call happens inside another one."""
        return self.calls[: len(outer.calls)] == outer.calls

    def escaping(self) -> list[fx.Node]:
        """Nodes inside whose value is used outside without passing a mark, as states are."""
        inside = set(self.body) | set(self.outputs)
        return [
            node
            for node in self.body
            if any(user not in inside and _is_read(user, self.lowered) for user in node.users)
        ]

    def operands(self) -> list[fx.Node]:
        """Nodes outside that the inside uses without passing a mark, in order of use."""
        inside = set(self.body) | set(self.inputs)
        used = (n for node in (*self.body, *self.outputs) for n in node.all_input_nodes)
        return list(dict.fromkeys(n for n in used if n not in inside))


def _is_read(user: fx.Node, lowered: Set[fx.Node]) -> bool:
    """Whether a use is one: assertions about a tensor's metadata are not lowered."""
    return user.op == "output" or user in lowered


def refuse_strict(graph: fx.Graph) -> None:
    """Strict export hides in-place writes to a module's arguments, so they would get lost."""
    for node in graph.nodes:
        # Strict export names the calls of modules by their addresses, the default by their paths.
        if is_mark(node) and any(key.partition("@")[0].isdigit() for key, _ in _calls(node)):
            raise ExternalizeError(
                "export_fn exported in strict mode, in which a write to an argument of an "
                "externalized module cannot be seen\n  try   torch.export.export(..., strict=False)"
            )


def regions(nodes: Sequence[fx.Node], found: Sequence[Match]) -> list[Region]:
    """The regions among the nodes of a graph, outer ones before those nested in them."""
    by_calls: dict[Stack, Region] = {}
    lowered = set(nodes)
    for node in nodes:
        if is_mark(node):
            said, calls = tag(node), _calls(node)
            fresh = Region(found[said.match], calls, lowered=lowered)
            region = by_calls.setdefault(calls, fresh)
            (region.inputs if said.side == "in" else region.outputs).append(node)
    if not by_calls:
        return []
    stacks: dict[fx.Node, Stack] = {}
    for node in nodes:
        stacks[node] = calls = _settled(node, stacks)
        for depth in range(1, len(calls) + 1):
            region_at = by_calls.get(calls[:depth])
            if region_at and not (is_mark(node) and depth == len(calls)):
                region_at.take(node)
    return sorted((r for r in by_calls.values() if r.body), key=lambda r: len(r.calls))


def _calls(node: fx.Node) -> Stack:
    stack = node.meta.get("nn_module_stack") or {}
    return tuple((key, path) for key, (path, *_) in stack.items())


def _settled(node: fx.Node, known: Mapping[fx.Node, Stack]) -> Stack:
    """Where a node belongs; one without a place of its own is where its inputs are."""
    inputs = (known.get(n, ()) for n in node.all_input_nodes)
    return _calls(node) or max(inputs, key=len, default=())
