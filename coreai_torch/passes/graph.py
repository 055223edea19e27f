"""The data that passes share: one FX graph and the tables that describe how to lower it.

The exported program belongs to the user, and a copy of 5,000 nodes costs as much as a tenth of
their conversion. So the FX graph is never changed: a pass returns a `PassGraph` with other tables.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import cached_property
from typing import Any

import torch
import torch.fx as fx

from ..ir.dialect import Value
from .externalize.cut import Region
from .externalize.spec import Match


class ZeroSize(Flag):
    """What is known about the zero-size tensors around a node."""

    POSSIBLE = auto()  # a dynamic size of an operand or result may be zero at run time
    RESULTS = auto()  # every result has no elements, whatever the dynamic sizes are
    OPERANDS = auto()  # every operand that is computed at run time has no elements


@dataclass(frozen=True)
class FusedConvolution:
    """A convolution and the batch norm that scales its channels, as one convolution."""

    convolution: fx.Node
    weight: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True)
class Span:
    """The positions along one axis that a view has; `keep` is false if the view drops the axis."""

    start: int
    count: int
    step: int = 1
    keep: bool = True

    def of(self, inner: Span) -> Span:
        """Return the positions of `inner`, which counts the positions of this span."""
        return Span(
            self.start + inner.start * self.step, inner.count, self.step * inner.step, inner.keep
        )

    @property
    def end(self) -> int:
        """The position behind the last one."""
        return self.start + (self.count - 1) * self.step + 1


@dataclass(frozen=True)
class Write:
    """A write of `source` to a part of `base`: a span for each axis of `base`."""

    base: fx.Node
    source: fx.Node
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class MergedWrites:
    """Writes that follow each other, in order; each of `nodes` returns the result of one."""

    base: fx.Node
    writes: list[Write]
    nodes: list[fx.Node]


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
        fused: batch norms that are lowered as part of the convolution before them.
        merged: writes to parts of a tensor that are lowered together, by the last node.
        zero_sizes: nodes with an operand or result that may have no elements.
        is_custom: whether a user registered the lowering of a node. Such a node is never folded
            or fused: the registered lowering must see it.
    """

    module: fx.GraphModule
    calls: Sequence[fx.Node]
    arguments: Mapping[fx.Node, Value] = field(default_factory=dict)
    constants: Mapping[fx.Node, Any] = field(default_factory=dict)
    names: Mapping[fx.Node, str] = field(default_factory=dict)
    externalized: Sequence[Match] = ()
    regions: Sequence[Region] = ()
    fused: Mapping[fx.Node, FusedConvolution] = field(default_factory=dict)
    merged: Mapping[fx.Node, MergedWrites] = field(default_factory=dict)
    zero_sizes: Mapping[fx.Node, ZeroSize] = field(default_factory=dict)
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
    externalized: Sequence[Match] = (),
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
