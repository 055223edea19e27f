"""Cut a captured program at nodes or modules, which become its outputs."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec

from ..capture.io_plan import IOPlan, State
from ..errors import NamingError
from ..fx.editing import erase_unused, output_of
from ..fx.programs import (
    Signature,
    argument,
    copied_module,
    example_leaves,
    flat_inputs,
    name_of,
    named_outputs,
    user_inputs,
    with_graph,
)

Program: TypeAlias = "torch.export.ExportedProgram"


def cut_outputs(program: Program, plan: IOPlan, wanted: Sequence[str]) -> Program:
    """Return a program that returns the values of the named nodes, modules or outputs.

    Nodes, inputs and states that these values do not depend on are removed. A state stays if a
    value depends on it in any call; then its write stays too, and what that depends on.
    """
    found = _resolve_all(program, plan, wanted)
    kept = _kept_states(plan, found.values())
    outputs = [
        *_writes(program, kept),
        *(OutputSpec(OutputKind.USER_OUTPUT, argument(node), None) for node in found.values()),
    ]
    module = copied_module(program.graph_module)
    nodes = {n.name: n for n in module.graph.nodes}
    output_of(module.graph).args = (tuple(nodes[spec.arg.name] for spec in outputs),)
    erase_unused(module.graph, {state.node.name for state in kept})
    alive = {node.name for node in module.graph.nodes}
    inputs = [s for s in program.graph_signature.input_specs if name_of(s) in alive]
    leaves = _leaves(program, alive)
    count = sum(spec.kind is InputKind.USER_INPUT for spec in inputs)
    examples, in_spec = flat_inputs([0] * count if leaves is None else leaves)
    return with_graph(
        program,
        module,
        example_inputs=None if leaves is None else examples,
        signature=Signature(inputs, outputs, in_spec, named_outputs(list(found))),
    )


def _resolve_all(program: Program, plan: IOPlan, wanted: Any) -> dict[str, fx.Node]:
    """Return the node of each output by its name."""
    listed = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    if not listed or not wanted or not all(isinstance(name, str) for name in wanted):
        raise NamingError(
            f"outputs is {wanted!r}\n  try   pass a list of node names or module paths"
        )
    found: dict[str, fx.Node] = {}
    for name in wanted:
        nodes = _resolve(program, plan, name)
        for index, node in enumerate(nodes):
            found[name if len(nodes) == 1 else f"{name}_{index}"] = node
    return found


def _resolve(program: Program, plan: IOPlan, name: str) -> list[fx.Node]:
    """Return the nodes that an output name, a node name or a module path stands for."""
    outputs = {o.name: o.value for o in plan.outputs if isinstance(o.value, fx.Node)}
    nodes = {n.name: n for n in program.graph.nodes if _is_value(n)}
    if name in outputs:
        return [outputs[name]]
    if name in nodes:
        return [nodes[name]]
    modules = _modules(program.graph)
    if name in modules:
        results = _results(modules[name], list(outputs.values()))
        if results:
            return results
    known = [*outputs, *modules, *nodes]
    near = difflib.get_close_matches(name, known, 3)
    hint = f"the path of a module, such as {next(iter(modules), 'encoder')!r}"
    if near:
        hint = ("one of " if len(near) > 1 else "") + ", ".join(map(repr, near))
    raise NamingError(
        f"outputs: no node, module or output is called {name!r}, or it computes nothing\n"
        f"  try   pass {hint}"
    )


def _is_value(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.Tensor | torch.SymInt)


def _modules(graph: fx.Graph) -> dict[str, dict[fx.Node, None]]:
    """Return the nodes of each module by its path, with those of the modules within it."""
    found: dict[str, dict[fx.Node, None]] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            for path in _paths(node):
                found.setdefault(path, {})[node] = None
    return found


def _paths(node: fx.Node) -> Iterator[str]:
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        short = str(path).removeprefix("L['self'].").removeprefix("L['self']")
        if short:
            yield short


def _results(body: Collection[fx.Node], outputs: Collection[fx.Node]) -> list[fx.Node]:
    """Return the tensors of a module that are used outside of it, apart from writes to states."""
    return [
        node
        for node in body
        if isinstance(node.meta.get("val"), torch.Tensor)
        and (node in outputs or any(u not in body and u.op != "output" for u in node.users))
    ]


def _kept_states(plan: IOPlan, values: Iterable[fx.Node]) -> list[State]:
    """Return the states that the values depend on, in this call or through later ones."""
    reached: set[fx.Node] = set()
    stack, kept = list(values), dict.fromkeys(plan.states, False)
    while stack:
        node = stack.pop()
        if node in reached:
            continue
        reached.add(node)
        stack.extend(node.all_input_nodes)
        for state in plan.states:
            if node is state.node and not kept[state]:
                kept[state] = True
                stack.append(state.written)
    return [state for state, is_kept in kept.items() if is_kept]


def _writes(program: Program, kept: Sequence[State]) -> list[OutputSpec]:
    """Return the specifications of the writes to the states that stay."""
    signature = program.graph_signature
    names = {spec.target: name_of(spec) for spec in signature.input_specs if spec.target}
    states = {state.node.name for state in kept}
    return [
        spec
        for spec in signature.output_specs
        if spec.kind is not OutputKind.USER_OUTPUT
        and (spec.target in states or names.get(spec.target) in states)
    ]


def _leaves(program: Program, alive: Collection[str]) -> list[Any] | None:
    leaves = example_leaves(program)
    if leaves is None:
        return None
    names = user_inputs(program)
    return [leaf for name, leaf in zip(names, leaves, strict=True) if name in alive]
