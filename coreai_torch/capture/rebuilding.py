"""Build an exported program from a graph with other inputs or outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputSpec,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

from ..torch_compat import pytree, set_guards


def rebuilt(
    program: torch.export.ExportedProgram,
    module: fx.GraphModule,
    inputs: Sequence[InputSpec],
    outputs: Sequence[OutputSpec],
    *,
    example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None,
    in_spec: pytree.TreeSpec | None = None,
    out_spec: pytree.TreeSpec | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> torch.export.ExportedProgram:
    """Return a program with another graph and signature; weights are shared, guards are dropped.

    `in_spec` and `out_spec` are the structures of the arguments and results if they change,
    `constants` is added to the constants of the program.
    """
    spec = program.call_spec
    targets = {i.target for i in inputs}
    stored = {**program.constants, **(constants or {})}
    signature = ModuleCallSignature([], [], in_spec or spec.in_spec, out_spec or spec.out_spec)
    module.graph.lint()
    module.recompile()
    made = torch.export.ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(list(inputs), list(outputs)),
        state_dict={name: value for name, value in program.state_dict.items() if name in targets},
        range_constraints=program.range_constraints,
        module_call_graph=[ModuleCallEntry("", signature)],
        example_inputs=example_inputs,
        constants={name: value for name, value in stored.items() if name in targets},
        verifiers=program.verifiers,
    )
    set_guards(made, [])
    return made


def argument(node: fx.Node) -> TensorArgument | SymIntArgument:
    """Return the argument of a specification that refers to a node."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return TensorArgument(node.name)
    return SymIntArgument(node.name)


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
