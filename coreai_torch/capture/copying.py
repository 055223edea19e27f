"""Copy a captured program without its weights, with another graph or other weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from ..torch_compat import guards_code, set_guards


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
) -> torch.export.ExportedProgram:
    """Return the program with another graph of the same signature; weights are shared.

    `weights` replaces parameters, buffers and constants by name, `example_inputs` the inputs.
    """
    made = torch.export.ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=program.graph_signature,
        state_dict=_replaced(program.state_dict, weights or {}),
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=example_inputs or program.example_inputs,
        constants=_replaced(program.constants, weights or {}),
        verifiers=program.verifiers,
    )
    set_guards(made, guards_code(program))
    return made


def _replaced(stored: Mapping[str, Any], weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: weights.get(name, value) for name, value in stored.items()}
