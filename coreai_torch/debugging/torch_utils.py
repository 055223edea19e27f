"""Saves what an exported program computes on its way, and loads it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.fx as fx
from torch.export import ExportedProgram

from .graph import check_exported
from .inspector import Inputs, values_of_nodes

_FILE = "intermediates.pt"


def save_intermediates(
    program: ExportedProgram,
    inputs: Inputs,
    output_dir: Path | str,
    node_filter: Callable[[fx.Node], bool] | None = None,
) -> Path:
    """Run the program in torch and write the tensors of its calls; gives the file's path.

    `inputs` come by name or in order; `node_filter` says which FX nodes are of interest.
    """
    check_exported(program)
    calls = [n for n in program.graph.nodes if n.op == "call_function"]
    wanted = {n.name for n in calls if node_filter is None or node_filter(n)}
    found = values_of_nodes(program, inputs, wanted.__contains__)
    path = Path(output_dir) / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({name: list(held) for name, held in found.items()}, path)
    return path


def load_intermediates(path: Path | str) -> dict[str, torch.Tensor | tuple[torch.Tensor, ...]]:
    """The tensors by the names of their FX nodes; a node with several gives a tuple.

    `path` is the file, or the directory that it was saved in.
    """
    path = Path(path)
    held = torch.load(path / _FILE if path.is_dir() else path, weights_only=True)
    return {name: v[0] if len(v) == 1 else tuple(v) for name, v in held.items()}
