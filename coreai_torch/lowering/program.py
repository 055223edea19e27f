"""Lower staged programs into one module, with a graph for each entry point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..asset.extension import converted
from ..asset.program import Program
from ..capture.io_plan import IOPlan, Output
from ..ir import graph, types
from ..ir.build import Build
from ..ir.casting import cast
from ..ir.dialect import Value, constant, refine
from ..ir.locations import Locations
from ..ir.shapes import with_static_sizes
from ..passes.dump import PassDump
from ..passes.externalize.spec import Externalized
from ..passes.pass_graph import PassGraph
from ..precision import PrecisionReport
from .registry import Registry
from .walk import Observer, Walk


@dataclass(frozen=True)
class Staged:
    """A validated exported program with its inputs, outputs and states."""

    entrypoint: str
    program: torch.export.ExportedProgram
    plan: IOPlan
    externalized: Sequence[Externalized] = ()
    before_recognition: torch.fx.GraphModule | None = None  # if recognition rewrote the graph
    missing: Sequence[torch.fx.Node] = ()  # calls that had no lowering when it was staged
    precision: PrecisionReport | None = None  # if it was cast to half precision


def build(
    staged: Sequence[Staged],
    registry: Registry,
    *,
    debug: bool,
    on_node: Callable[[], None],
    dump_passes: Path | None = None,
    optimize_at_save: bool = False,
    exact: bool = False,
    finish: Sequence[Callable[[Build], None]] = (),
) -> Program:
    """Lower all staged programs into one module; equal constants are shared between them.

    `dump_passes` is a folder for the graph of each entry point after each pass.
    `optimize_at_save` makes `save_asset` optimize a program that is not optimized yet.
    `exact` keeps guards of infinities, NaN and overflow that the plain forms leave out.
    The functions in `finish` may change the module while it is open.
    """
    module = Build(exact=exact)
    with module.open():
        module.reserve(one.entrypoint for one in staged)
        for one in staged:
            locations = Locations(one.entrypoint, debug)
            observe = None if dump_passes is None else _observer(one, dump_passes)
            entrypoint(one, Walk(registry, locations, on_node, one.externalized), observe)
        for change in finish:
            change(module)
    return converted(
        module.module, optimize_at_save=optimize_at_save, tested=registry.is_built_in()
    )


def _observer(staged: Staged, folder: Path) -> Observer:
    """Return a function that dumps each graph; recognition has already run, as the first pass."""
    dump = PassDump(folder, staged.entrypoint)
    before = staged.before_recognition
    if before is None:
        return dump
    dump("captured", PassGraph(before, [n for n in before.graph.nodes if n.op == "call_function"]))
    return lambda name, graph: dump("recognize" if name == "captured" else name, graph)


def entrypoint(staged: Staged, walk: Walk, observe: Observer | None = None) -> None:
    """Build the graph of one staged program in the open module."""
    plan = staged.plan
    states = [graph.Port(s.name, types.ranked(s.node.meta["val"])) for s in plan.states]
    inputs = [graph.Port(i.name, types.ranked(i.node.meta["val"])) for i in plan.inputs]

    def body(read: Sequence[Value], given: Sequence[Value]) -> graph.Results:
        feed: dict[Any, Any] = dict(plan.folded)
        feed.update((node, tensor) for node, (_, tensor) in plan.constants.items())
        feed.update(zip((s.node for s in plan.states), read, strict=True))
        feed.update(zip((i.node for i in plan.inputs), given, strict=True))
        module = staged.program.graph_module
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        names = {node: name for node, (name, _) in plan.constants.items()}
        names.update(
            (node, s.buffer) for s in plan.states if s.buffer for node in (s.node, s.written)
        )
        stored = walk.graph(module, [feed[n] for n in placeholders], names, observe)
        by_node = dict(zip(_output_nodes(module), stored, strict=True))
        return graph.Results(
            [_state(by_node[s.written], s.node.meta["val"], s.name) for s in plan.states],
            [(o.name, _output(o, by_node)) for o in plan.outputs],
        )

    graph.entrypoint(staged.entrypoint, states, inputs, body)


def _output_nodes(module: torch.fx.GraphModule) -> list[Any]:
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    return list(output.args[0])


def _output(output: Output, by_node: dict[Any, Any]) -> Value:
    if isinstance(output.value, torch.fx.Node):
        return _value(by_node[output.value], output.value.meta["val"], output.name)
    return constant(output.value, types.scalar_dtype(output.value))


def _state(stored: Any, promised: Any, name: str) -> Value:
    """Return what is written to a state as a value of its type."""
    return refine(_value(stored, promised, name), types.ranked(promised))


def _value(stored: Any, promised: Any, name: str) -> Value:
    """Return a result as a value of the promised type, or of one with more static sizes."""
    type_ = types.ranked(promised)
    if isinstance(stored, torch.Tensor):
        stored = Build.current().tensor(stored, name)
    elif isinstance(stored, bool | int | float):
        stored = constant(stored, types.dtype_of(type_))
    return with_static_sizes(cast(stored, types.dtype_of(type_)), type_)
