"""The data that passes share: one FX graph and the tables that describe how to lower it.

The exported program belongs to the user, and a copy of 5,000 nodes costs as much as a tenth of
their conversion. So the FX graph is never changed: a pass returns a `PassGraph` with other tables.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import torch.fx as fx

from ..ir.dialect import Value
from .externalize.cut import Region
from .externalize.spec import Externalized


class Values(Protocol):
    """What the nodes of a graph were lowered to."""

    nodes: dict[fx.Node, Any]
    names: Mapping[fx.Node, str]

    def value(self, node: fx.Node) -> Any:
        """Return the value of a node; a constant is emitted."""


# Lowers a node of another graph, with the values and the names of its operands.
Lower: TypeAlias = Callable[[fx.Node, Mapping[fx.Node, Any], Mapping[fx.Node, str]], Any]


class Replacement(Protocol):
    """What a pass emits for a node in place of its registered lowering."""

    @property
    def reads(self) -> Collection[fx.Node]:
        """The nodes whose values it needs."""

    @property
    def layer(self) -> fx.Node | None:
        """The node whose source lines the ops get; None for the node itself."""

    def emit(self, node: fx.Node, values: Values, lower: Lower) -> Any:
        """Emit ops and return the results; None asks for the registered lowering."""


def _is_never_custom(node: fx.Node) -> bool:
    return False


@dataclass(frozen=True)
class PassGraph:
    """One FX graph, or the part of one that an externalized region covers.

    Attributes:
        module: the graph module; passes read it and leave it unchanged.
        calls: the nodes to lower, in order. A region is represented by its last node.
        arguments: placeholders whose values are computed at run time.
        constants: nodes whose values are known now: tensors (weights are referenced, never
            copied), Python numbers, graph modules, lists of these for several results.
        names: nodes that have a name in the user's model, such as parameters.
        externalized: the modules whose boundary is kept.
        regions: the calls of externalized modules.
        replaced: what a pass emits for a node: a layer with the batch norm fused into it, several
            writes to parts of a tensor together, or results without elements.
        may_be_empty: nodes with an operand or result that may have no elements at run time.
        fillers: calls whose numbers beyond 32 bits are the extremes of int64, as fillers.
        is_custom: whether a user registered the lowering of a node. Such a node is never folded
            or fused: the registered lowering must see it.
    """

    module: fx.GraphModule
    calls: Sequence[fx.Node]
    arguments: Mapping[fx.Node, Value] = field(default_factory=dict)
    constants: Mapping[fx.Node, Any] = field(default_factory=dict)
    names: Mapping[fx.Node, str] = field(default_factory=dict)
    externalized: Sequence[Externalized] = ()
    regions: Sequence[Region] = ()
    replaced: Mapping[fx.Node, Replacement] = field(default_factory=dict)
    may_be_empty: Collection[fx.Node] = frozenset()
    fillers: Collection[fx.Node] = frozenset()
    is_custom: Callable[[fx.Node], bool] = _is_never_custom

    @cached_property
    def region_at(self) -> dict[fx.Node, Region]:
        """The region that each representing node stands for."""
        return {next(reversed(region.body)): region for region in self.regions if region.body}

    @property
    def results(self) -> list[Any]:
        """The arguments of the output node, one for each result."""
        returned = next(iter(reversed(self.module.graph.nodes))).args[0]
        return list(returned) if isinstance(returned, list | tuple) else [returned]


def captured(
    module: fx.GraphModule,
    arguments: Sequence[Any],
    *,
    names: Mapping[fx.Node, str] | None = None,
    externalized: Sequence[Externalized] = (),
    is_custom: Callable[[fx.Node], bool] = _is_never_custom,
) -> PassGraph:
    """Return the graph before any pass: each argument is a run-time value or a constant."""
    at_run_time: dict[fx.Node, Value] = {}
    constants: dict[fx.Node, Any] = {}
    calls: list[fx.Node] = []
    feed = iter(arguments)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            argument = next(feed)
            table = at_run_time if isinstance(argument, Value) else constants
            table[node] = argument
        elif node.op == "get_attr":
            constants[node] = operator.attrgetter(node.target)(module)
        elif node.op == "call_function":
            calls.append(node)
    return PassGraph(
        module,
        calls,
        at_run_time,
        constants,
        names or {},
        externalized,
        is_custom=is_custom,
    )
