"""Inputs that were the same tensor while a model was exported: torch merges them into one input."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ..torch_compat import pytree


def copy_aliases(arguments: Any) -> Any:
    """Return the arguments with a copy in place of each repeated tensor."""
    tensors = [id(v) for v in pytree.tree_leaves(arguments) if isinstance(v, torch.Tensor)]
    if len(set(tensors)) == len(tensors):
        return arguments  # unflattening a cache may return a different cache
    seen: set[int] = set()

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or id(value) not in seen:
            seen.add(id(value))
            return value
        return value.detach().clone()

    return pytree.tree_map(copy, arguments)


def warn(program: torch.export.ExportedProgram) -> None:
    """Warn about inputs that the program never reads because they aliased another input.

    `torch.export.export(attention, (x, x, x))` returns a program that reads one of three inputs.
    """
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    names = program.graph_signature.user_inputs
    leaves = pytree.tree_leaves(program.example_inputs)
    if len(names) != len(leaves):
        return
    groups: dict[int, list[str]] = {}
    for name, leaf in zip(names, leaves, strict=True):
        if isinstance(leaf, torch.Tensor) and isinstance(name, str):
            groups.setdefault(id(leaf), []).append(name)
    for group in groups.values():
        unused = [name for name in group if not placeholders[name].users]
        if unused and len(unused) < len(group):
            warnings.warn(
                f"inputs {group} were one tensor when the program was exported, and torch merged "
                f"them: {unused} are never read\n  try   export with a different tensor for each",
                UserWarning,
                stacklevel=4,
            )
