"""Save the intermediate values of an exported program, and load them again."""

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
    """Run the program in torch, write the tensors of its nodes, and return the file's path.

    Pass `inputs` by name or in order; `node_filter` selects FX nodes.
    """
    check_exported(program)
    calls = [n for n in program.graph.nodes if n.op == "call_function"]
    wanted = {n.name for n in calls if node_filter is None or node_filter(n)}
    found = values_of_nodes(program, inputs, wanted.__contains__)
    path = Path(output_dir) / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({name: list(values) for name, values in found.items()}, path)
    return path


def load_intermediates(path: Path | str) -> dict[str, torch.Tensor | tuple[torch.Tensor, ...]]:
    """Return the tensors by the names of their FX nodes; a node with several gives a tuple.

    `path` is the file, or the directory that it was saved in.
    """
    path = Path(path)
    saved = torch.load(path / _FILE if path.is_dir() else path, weights_only=True)
    return {name: v[0] if len(v) == 1 else tuple(v) for name, v in saved.items()}
