"""Inputs that were one tensor while a model was exported: torch takes them for one ever after."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ..torch_compat import pytree


def told_apart(given: Any) -> Any:
    """The same arguments, with a copy wherever a tensor comes again."""
    tensors = [id(v) for v in pytree.tree_leaves(given) if isinstance(v, torch.Tensor)]
    if len(set(tensors)) == len(tensors):
        return given  # as it is: a cache that is put together anew may be another
    seen: set[int] = set()

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or id(value) not in seen:
            seen.add(id(value))
            return value
        return value.detach().clone()

    return pytree.tree_map(own, given)


def warn(program: torch.export.ExportedProgram) -> None:
    """Name the inputs that the program never reads, because another was the same tensor.

    `torch.export.export(attention, (x, x, x))` gives a program of one input and two idle ones.
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
        idle = [name for name in group if not placeholders[name].users]
        if idle and len(idle) < len(group):
            warnings.warn(
                f"inputs {group} were one tensor when the program was exported, and torch took "
                f"them for one: {idle} are never read\n  try   exporting with tensors of their own",
                UserWarning,
                stacklevel=4,
            )
