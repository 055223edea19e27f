"""Derive output names from the structure that a model returns: `logits`, `hidden_states_0`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import OutputKind

from ..torch_compat import child_specs, pytree


def from_structure(program: torch.export.ExportedProgram) -> list[str | None]:
    """Return a name for each returned value: its path from the first key on.

    The name is None for a value outside of mappings, dataclasses and named tuples.
    """
    user = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    structure = program.call_spec.out_spec
    if structure is None or structure.num_leaves != len(user) or not _has_paths(structure):
        return [None] * len(user)
    # Unflattening constructs the classes again, with the values they had during tracing.
    nodes = {n.name: n.meta.get("val") for n in program.graph.nodes}
    leaves = [nodes.get(s.arg.name, getattr(s.arg, "value", None)) for s in user]
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(leaves, structure))
    return [_name(path) for path, _ in paths] if len(paths) == len(user) else [None] * len(user)


def _has_paths(structure: pytree.TreeSpec) -> bool:
    if structure.is_leaf():
        return True
    known = pytree.SUPPORTED_NODES.get(structure.type)
    keyed = known is not None and known.flatten_with_keys_fn is not None
    return keyed and all(_has_paths(child) for child in child_specs(structure))


def _name(path: Sequence[Any]) -> str | None:
    parts = [_part(key) for key in path]
    keys = [i for i, key in enumerate(path) if not isinstance(key, pytree.SequenceKey)]
    if not keys:
        return None
    return re.sub(r"\W", "_", "_".join(parts[keys[0] :]))


def _part(key: Any) -> str:
    if isinstance(key, pytree.SequenceKey):
        return str(key.idx)
    return str(key.key if isinstance(key, pytree.MappingKey) else key.name)
