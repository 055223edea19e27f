"""The loop over nodes: every graph, branch and submodule comes through here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..capture.liveness import live_nodes
from ..errors import (
    REPORT_HINT,
    ConversionError,
    LoweringError,
    WrongResultError,
    describe,
    target_name,
    unsupported,
)
from ..ir import types
from ..ir.build import Build
from ..ir.dialect import Value, constant, refine
from ..ir.locations import Locations
from ..passes.externalize.cut import Region, idle, regions
from ..passes.externalize.spec import Match
from ..passes.fold_constants import UNFOLDED, fold
from . import externalized
from .binding import Call
from .fuse_batch_norm import Merged, merges
from .registry import Registry
from .scope import Scope
from .zero_size import (
    always_full,
    constant_without_elements,
    made_of_no_elements,
    may_be_empty,
    value_without_elements,
)


@dataclass(frozen=True)
class Walk:
    """How graphs are lowered in one conversion."""

    registry: Registry
    locations: Locations
    on_node: Callable[[], None] = lambda: None
    externalized: Sequence[Match] = ()

    def graph(
        self,
        module: fx.GraphModule,
        arguments: Sequence[Any],
        names: Mapping[fx.Node, str] | None = None,
    ) -> list[Any]:
        """Lower every node in order; gives what the output node holds, constants as tensors."""
        scope = Scope(names or {})
        feed = iter(arguments)
        cut = regions(module.graph.nodes, self.externalized)
        every = [r for region in cut for r in (region, *region.all_nested())]
        live = live_nodes(module.graph, [(r.body, r.ends) for r in every])
        calls: list[fx.Node] = []
        for node in module.graph.nodes:
            if node.op == "placeholder":
                scope.hold(node, _no_elements(node.meta.get("val"), next(feed)))
            elif node.op == "get_attr":
                scope.hold(node, operator.attrgetter(node.target)(module))
            elif node.op == "call_function" and node in live:
                calls.append(node)
        cut = [kept for region in cut if (kept := region.kept(live))]
        unread = idle(calls, cut)
        self.nodes([node for node in calls if node not in unread], scope, cut)
        held = scope.held(node.args[0])  # the output is the last node of every FX graph
        return list(held) if isinstance(held, list | tuple) else [held]

    def nodes(self, calls: Sequence[fx.Node], scope: Scope, cut: Sequence[Region]) -> None:
        """Lower these nodes in order; a region among them becomes a graph of its own."""
        inside = {node: region for region in cut for node in region.body}
        last = {next(reversed(region.body)) for region in cut}
        merged = merges(calls, inside, scope, self.registry)
        swallowed = {pair.convolution for pair in merged.values()}
        for node in calls:
            if node in merged:
                scope.hold(node, [self._merged(merged[node], scope), None, None])
                self.on_node()
            elif node not in inside and node not in swallowed:
                scope.hold(node, self._node(node, scope))
                self.on_node()
            elif node in last:
                with self.locations.of(node):
                    externalized.emit(self.nodes, inside[node], scope)

    def _node(self, node: fx.Node, scope: Scope) -> Any:
        if node.target is operator.getitem:
            return _item(node, scope)
        full = always_full(node)
        empty = None if full else constant_without_elements(node.meta.get("val"))
        if empty is not None:
            return empty
        entry = self.registry.for_node(node)
        at_run_time = any(isinstance(scope.nodes.get(n), Value) for n in node.all_input_nodes)
        built_in = entry is None or entry.origin == "built-in"
        if not at_run_time and built_in:
            folded = fold(node, scope.held(node.args), scope.held(dict(node.kwargs)))
            if folded is not UNFOLDED:
                return folded
        with self.locations.of(node):
            empty = None if full else value_without_elements(node, scope)
            if empty is None and built_in and not full:
                empty = made_of_no_elements(node, scope)
            if empty is not None:
                return held_to(node, empty)
            if entry is None:
                hint = "an op the converter knows; `coreai_torch.ops` lists them"
                raise unsupported([(node, hint)])
            return self._lowered(entry, node, scope, not full and may_be_empty(node))

    def _merged(self, pair: Merged, scope: Scope) -> Any:
        node, inner = pair.call(scope)
        with self.locations.of(pair.norm):
            return self._lowered(self.registry.for_node(node), node, inner, may_be_empty(node))

    def _lowered(self, entry: Any, node: fx.Node, scope: Scope, may_be_zero: bool) -> Any:
        try:
            with Build.current().sizes_that_may_be_zero(may_be_zero):
                result = entry(Call(node, scope), self.subgraph)
        except ConversionError:
            raise
        except Exception as cause:
            problem = f"{target_name(node.target)}: {type(cause).__name__}: {cause}"
            raise LoweringError(describe(node, problem, _way_out(entry))) from cause
        return held_to(node, result, _way_out(entry))

    def subgraph(self, module: fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """Lower another graph in the current place."""
        return self.graph(module, operands)


def _item(node: fx.Node, scope: Scope) -> Any:
    source, index = node.args
    result = scope.nodes[source][index]
    if result is None:
        raise LoweringError(
            describe(node, f"result {index} of %{source.name} was not computed", REPORT_HINT)
        )
    return result


def _no_elements(val: Any, argument: Any) -> Any:
    """An argument without elements is as good as a constant."""
    empty = constant_without_elements(val)
    return argument if empty is None else empty


def _way_out(entry: Any) -> str:
    """For whoever wrote the lowering that failed."""
    own = entry.origin == "built-in"
    return REPORT_HINT if own else f"mending the {entry.origin} lowering"


def held_to(node: fx.Node, result: Any, hint: str = REPORT_HINT) -> Any:
    """Hold what a lowering returned to the types that the exported graph promises."""
    promised = node.meta.get("val")
    if isinstance(promised, list | tuple):
        if not isinstance(result, list | tuple) or len(result) != len(promised):
            raise _wrong(node, f"{result!r}", f"{len(promised)} results", hint)
        return [_held_one(node, r, p, hint) for r, p in zip(result, promised, strict=True)]
    if result is None and isinstance(promised, torch.Tensor):  # or the next op is blamed for it
        raise _wrong(node, "None", str(types.ranked(promised)), hint)
    return _held_one(node, result, promised, hint)


def _held_one(node: fx.Node, result: Any, promised: Any, hint: str) -> Any:
    if result is None or promised is None or isinstance(result, torch.Tensor):
        return result
    if isinstance(result, bool | int | float) and not isinstance(promised, torch.Tensor):
        return result
    type_ = types.ranked(promised)
    if isinstance(result, bool | int | float):
        result = constant(result, types.dtype_of(type_))
    if not isinstance(result, Value):
        raise _wrong(node, f"{result!r} ({type(result).__name__})", str(type_), hint)
    if result.type == type_:
        return result
    same = result.type.rank == type_.rank and result.type.element_type == type_.element_type
    if not same or any(_clash(a, b) for a, b in zip(result.type.shape, type_.shape, strict=True)):
        raise _wrong(node, str(result.type), str(type_), hint)
    known = [
        b if a == types.DYNAMIC else a for a, b in zip(result.type.shape, type_.shape, strict=True)
    ]
    return refine(result, type(type_).get(known, type_.element_type))


def _clash(found: int, promised: int) -> bool:
    return found != promised and types.DYNAMIC not in (found, promised)


def _wrong(node: fx.Node, found: str, promised: str, hint: str) -> WrongResultError:
    problem = f"{target_name(node.target)} became {found}, but the graph promises {promised}"
    return WrongResultError(describe(node, problem, hint))
