"""Copy an exported program with another graph, other weights or other inputs and outputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

from ..torch_compat import guards_code, pytree, set_guards
from .editing import output_of


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a program; the structures of arguments and results if they change."""

    inputs: Sequence[InputSpec]
    outputs: Sequence[OutputSpec]
    in_spec: pytree.TreeSpec | None = None
    out_spec: pytree.TreeSpec | None = None


def copied_module(module: fx.GraphModule) -> fx.GraphModule:
    """Copy the graph and the graphs of its branches; weights are shared."""
    result = fx.GraphModule(module, copy.deepcopy(module.graph))
    result.meta = module.meta
    for copied, node in zip(result.graph.nodes, module.graph.nodes, strict=True):
        copied.name = node.name  # a placeholder `input` would be `input_1` now
    for name, inner in list(result.named_children()):
        if isinstance(inner, fx.GraphModule):
            setattr(result, name, copied_module(inner))
    return result


def with_graph(
    program: torch.export.ExportedProgram,
    module: fx.GraphModule,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    example_inputs: Any = None,
    signature: Signature | None = None,
) -> torch.export.ExportedProgram:
    """Return the program with another graph; weights are shared.

    `weights` replaces parameters, buffers and constants by name. With another `signature` it also
    adds constants, weights that no input names are left out, and guards are dropped.
    """
    graph_signature, calls = program.graph_signature, program.module_call_graph
    state, constants = dict(program.state_dict), dict(program.constants)
    for name, value in (weights or {}).items():
        (state if name in state else constants)[name] = value
    if signature is not None:
        graph_signature = ExportGraphSignature([*signature.inputs], [*signature.outputs])
        spec, named = program.call_spec, {one.target for one in signature.inputs}
        specs = (signature.in_spec or spec.in_spec, signature.out_spec or spec.out_spec)
        calls = [ModuleCallEntry("", ModuleCallSignature([], [], *specs))]
        state = {name: value for name, value in state.items() if name in named}
        constants = {name: value for name, value in constants.items() if name in named}
    made = torch.export.ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=graph_signature,
        state_dict=state,
        range_constraints=program.range_constraints,
        module_call_graph=calls,
        example_inputs=example_inputs or program.example_inputs,
        constants=constants,
        verifiers=program.verifiers,
    )
    set_guards(made, [] if signature is not None else guards_code(program))
    return made


def argument(node: fx.Node) -> TensorArgument | SymIntArgument:
    """Return the argument of a specification that refers to a node."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return TensorArgument(node.name)
    return SymIntArgument(node.name)


def output_specs(program: torch.export.ExportedProgram, graph: fx.Graph) -> list[OutputSpec]:
    """Return the specifications of a program's outputs for the nodes that a graph returns."""
    return [
        replace(spec, arg=argument(value)) if isinstance(value, fx.Node) else spec
        for spec, value in zip(
            program.graph_signature.output_specs, output_of(graph).args[0], strict=True
        )
    ]


def name_of(spec: InputSpec | OutputSpec) -> str:
    """Return the name of the node that a specification refers to; empty for a constant."""
    return str(getattr(spec.arg, "name", ""))


def user_inputs(program: torch.export.ExportedProgram) -> list[str]:
    """Return the names of the arguments of `forward`, in the order of the leaves."""
    specs = program.graph_signature.input_specs
    return [name_of(spec) for spec in specs if spec.kind is InputKind.USER_INPUT]


def stored_tensors(
    program: torch.export.ExportedProgram, *, states: bool = True
) -> dict[str, torch.Tensor]:
    """Return parameters, buffers and constants by the names of their placeholders.

    Without `states`, buffers that a call writes are left out.
    """
    signature, stored = program.graph_signature, {**program.constants, **program.state_dict}
    left_out = set() if states else set(signature.buffers_to_mutate.values())
    return {
        name_of(spec): value
        for spec in signature.input_specs
        if isinstance(value := stored.get(spec.target), torch.Tensor)
        and spec.target not in left_out
    }


def flat_inputs(leaves: Sequence[Any]) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], Any]:
    """Return leaves as positional arguments, and the structure of these."""
    spec = pytree.tree_flatten((tuple(0 for _ in leaves), {}))[1]
    return (tuple(leaves), {}), spec


def named_outputs(names: Sequence[str]) -> pytree.TreeSpec:
    """Return the structure of a dictionary with these keys."""
    return pytree.tree_flatten(dict.fromkeys(names, 0))[1]


def example_leaves(program: torch.export.ExportedProgram) -> list[Any] | None:
    """Return the example inputs as a flat list, or None."""
    if program.example_inputs is None:
        return None
    return list(pytree.tree_leaves(program.example_inputs, is_leaf=lambda x: x is None))
