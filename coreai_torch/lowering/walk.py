"""Lower the nodes of a graph in order: the one loop that every graph goes through."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import (
    REPORT_HINT,
    ConversionError,
    LoweringError,
    NarrowingError,
    describe,
    located,
    target_name,
)
from ..ir.build import Build
from ..ir.dialect import Value
from ..ir.locations import Locations
from ..ir.zero_size import NEVER, POSSIBLE
from ..passes import pipeline
from ..passes.dead_code import collapsed
from ..passes.externalize.cut import Region
from ..passes.externalize.spec import Externalized
from ..passes.pass_graph import PassGraph, captured
from . import externalized
from .binding import Call
from .entry import Entry, ReplacedLowering, is_built_in, unsupported_op
from .registry import Registry
from .result_types import check_result_type
from .scope import Scope

Observer = Callable[[str, PassGraph], None]


@dataclass(frozen=True)
class Walk:
    """How the graphs of one entry point are lowered."""

    registry: Registry
    locations: Locations
    on_node: Callable[[], None] = lambda: None
    externalized: Sequence[Externalized] = ()

    def graph(
        self,
        module: fx.GraphModule,
        arguments: Sequence[Any],
        names: Mapping[fx.Node, str] | None = None,
        observe: Observer | None = None,
    ) -> list[Any]:
        """Run the passes, lower every call, and return the results; constants stay tensors."""
        graph = captured(
            module,
            arguments,
            names=names,
            externalized=self.externalized,
            is_custom=self._is_custom,
        )
        if observe is not None:
            observe("captured", graph)
        scope = Scope(graph.names)
        self._calls(pipeline.run(graph, observe=observe), scope)
        return [scope.resolve(result) for result in graph.results]

    def subgraph(self, module: fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """Lower another graph at the current place."""
        return self.graph(module, operands)

    def region(self, nodes: Sequence[fx.Node], scope: Scope, nested: Sequence[Region]) -> None:
        """Lower the nodes of a region, whose arguments and constants the scope holds."""
        at_run_time = {n: v for n, v in scope.nodes.items() if isinstance(v, Value)}
        constants = {n: v for n, v in scope.nodes.items() if n not in at_run_time}
        graph = PassGraph(
            nodes[-1].graph.owning_module,
            collapsed(nodes, nested),
            at_run_time,
            constants,
            scope.names,
            regions=nested,
            is_custom=self._is_custom,
        )
        self._calls(pipeline.run(graph, pipeline.REGION_PASSES), scope)

    def _calls(self, graph: PassGraph, scope: Scope) -> None:
        for table in (graph.arguments, graph.constants):
            for node, value in table.items():
                scope.record(node, value)
        for node in graph.calls:
            if node in graph.region_at:
                with self.locations.of(node):
                    externalized.emit(self.region, graph.region_at[node], scope)
                continue
            replaced = graph.replaced.get(node)
            with self.locations.of(node, replaced and replaced.layer):
                scope.record(node, self._node(node, graph, scope))
            self.on_node()

    def _node(self, node: fx.Node, graph: PassGraph, scope: Scope) -> Any:
        if node.target is operator.getitem:
            return _item(node, scope)
        entry = self._entry(node, graph)
        sizes = POSSIBLE if node in graph.may_be_empty else NEVER
        build, call = Build.current(), Call(node, scope)
        build.narrows_fillers = node in graph.fillers
        try:
            if build.zero_sizes is sizes:  # most nodes; entering costs 2 % of their conversion
                result = entry(call, self.subgraph)
            else:
                with build.assume(sizes):
                    result = entry(call, self.subgraph)
        except NarrowingError as cause:
            raise NarrowingError(located(node, str(cause.args[0]))) from cause
        except ConversionError:
            raise
        except Exception as cause:
            problem = f"{target_name(node.target)}: {type(cause).__name__}: {cause}"
            raise LoweringError(describe(node, problem, _hint(entry))) from cause
        if is_built_in(entry) and isinstance(result, Value) and _is_scale(node):
            problem = f"{target_name(node.target)} cannot compute float8_e8m0fnu at run time"
            raise ConversionError(describe(node, problem, "cast its operands to float32 first"))
        return check_result_type(node, result, _hint(entry))

    def _entry(self, node: fx.Node, graph: PassGraph) -> Entry:
        """Return the rule that lowers a node: the registered one, or what a pass asks for."""
        replaced = graph.replaced.get(node)
        if replaced is None:
            return self._registered(node)
        registered = self.registry.for_node(node)
        return ReplacedLowering(node.target, replaced, registered, self._other)

    def _other(
        self, node: fx.Node, values: Mapping[fx.Node, Any], names: Mapping[fx.Node, str]
    ) -> Any:
        """Lower a node that a pass made."""
        scope = Scope(names)
        for operand, value in values.items():
            scope.record(operand, value)
        return self._registered(node)(Call(node, scope), self.subgraph)

    def _registered(self, node: fx.Node) -> Entry:
        entry = self.registry.for_node(node)
        if entry is None:
            raise unsupported_op(node)
        return entry

    def _is_custom(self, node: fx.Node) -> bool:
        entry = self.registry.for_node(node)
        return entry is not None and not is_built_in(entry)


def _is_scale(node: fx.Node) -> bool:
    """Whether a result has the dtype of MX scales, which only constants have in the dialect."""
    return getattr(node.meta.get("val"), "dtype", None) is torch.float8_e8m0fnu


def _item(node: fx.Node, scope: Scope) -> Any:
    source, index = node.args
    result = scope.nodes[source][index]
    if result is None:
        raise LoweringError(
            describe(node, f"result {index} of %{source.name} was not computed", REPORT_HINT)
        )
    return result


def _hint(entry: Entry) -> str:
    """Address whoever wrote the lowering that failed."""
    return REPORT_HINT if is_built_in(entry) else f"fix the {entry.origin} lowering"
