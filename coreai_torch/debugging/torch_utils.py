"""Save the intermediate values of an exported program, and load them again."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.fx as fx
from torch.export import ExportedProgram

from ..asset import reading
from ..errors import ConversionError
from .graph import check_exported, operation_ids
from .inspector import Inputs, names_of_inputs, values_of_nodes

_SUFFIX = ".aimodelintermediates"
_FILE = "metadata.json"
_KINDS = ("inputs", "outputs", "intermediates")

NodeFilter: TypeAlias = "Callable[[fx.Node], bool] | Callable[[fx.Node, Any], bool]"
Saved: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...]"


class DebugTrace(dict[str, Saved]):
    """The tensors of computed FX nodes by name, and the same in groups.

    `inputs` are those of the program, which the dictionary itself does not contain. `mappings` has
    the ids of the operations of a Core AI program by node, if one was given.
    """

    def __init__(
        self,
        inputs: Mapping[str, Saved],
        outputs: Mapping[str, Saved],
        intermediates: Mapping[str, Saved],
        mappings: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        super().__init__({**intermediates, **outputs})
        self.inputs, self.outputs, self.intermediates = inputs, outputs, intermediates
        self.mappings = mappings


def save_intermediates(
    program: ExportedProgram,
    inputs: Inputs,
    output_dir: Path | str,
    node_filter: NodeFilter | None = None,
    coreai_program: reading.Source | None = None,
    enable_autocast: bool = False,
    model_name: str = "main",
) -> Path:
    """Run the program in torch, write the tensors of its nodes, and return the path of the index.

    Pass `inputs` by name or in order. `node_filter` selects FX nodes; it takes the node, or the
    node and its value. The folder `{model_name}.aimodelintermediates` gets a file for each tensor.
    With `coreai_program`, the index has the ids of its operations by node, if it was converted in
    debug mode. `enable_autocast` runs the program under `torch.autocast`.
    """
    check_exported(program)
    given = set(names_of_inputs(program))
    nodes = [n for n in program.graph.nodes if n.op == "call_function" or n.name in given]
    with torch.autocast("cpu", enabled=enable_autocast):
        found = values_of_nodes(program, inputs, {n.name for n in nodes}.__contains__)
    (end,) = (n for n in program.graph.nodes if n.op == "output")
    returned = {n.name for n in end.all_input_nodes}
    folder = Path(output_dir) / f"{model_name}{_SUFFIX}"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    index: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for node in nodes:
        values = found.get(node.name)
        if values is None or not _selected(node_filter, node, values):
            continue
        kind = "inputs" if node.name in given else "outputs"
        kind = kind if node.name in given | returned else "intermediates"
        index[kind][node.name] = _saved(folder, node, values)
    if coreai_program is not None:
        index["mappings"] = _mappings(coreai_program, {n.name for n in nodes})
    path = folder / _FILE
    path.write_text(json.dumps(index, indent=2), encoding="utf-8")
    return path


def load_intermediates(path: Path | str, device: torch.device | str = "cpu") -> DebugTrace:
    """Return the tensors by the names of their FX nodes; a node with several gives a tuple.

    `path` is what `save_intermediates` returned, its folder, or a directory with one such folder.
    """
    path = _index(Path(path))
    index = json.loads(path.read_text(encoding="utf-8"))
    inputs, outputs, inner = (
        {n: _loaded(path.parent, e, device) for n, e in index[k].items()} for k in _KINDS
    )
    return DebugTrace(inputs, outputs, inner, index.get("mappings"))


def _index(path: Path) -> Path:
    """Return the index file in a folder of values, or in a directory around it."""
    if not path.is_dir():
        return path
    if (path / _FILE).exists():
        return path / _FILE
    found = sorted(path.glob(f"*{_SUFFIX}/{_FILE}"))
    if len(found) != 1:
        raise ConversionError(
            f"{path} has {len(found)} folders {_SUFFIX}\n  try   pass the path of one of them"
        )
    return found[0]


def _mappings(program: reading.Source, nodes: Collection[str]) -> dict[str, list[int]]:
    """Return the ids of the operations that each node was lowered to."""
    found: dict[str, list[int]] = {}
    for _, op, number in operation_ids(reading.read(program, largest=0)):
        if op.place.fx_node in nodes and op.name != "coreai.constant":
            found.setdefault(op.place.fx_node, []).append(number)
    return found


def _selected(node_filter: Any, node: fx.Node, values: Sequence[torch.Tensor]) -> bool:
    if node_filter is None:
        return True
    value = values[0] if len(values) == 1 else tuple(values)
    return bool(node_filter(node, value) if _takes_two(node_filter) else node_filter(node))


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _saved(folder: Path, node: fx.Node, values: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Write the tensors of a node and return its entry; numpy lacks bfloat16 and 8-bit floats."""
    files = []
    for place, value in enumerate(values):
        plain = value.detach().cpu()
        narrow = plain.is_floating_point() and plain.dtype not in (torch.float64, torch.float16)
        files.append(f"data/{node.name}_{place:04d}.npy")
        np.save(folder / files[-1], (plain.float() if narrow else plain).numpy())
    return {
        "node_name": node.name,
        "node_op": node.op,
        "node_target": str(node.target),
        "data_file": files[0],
        "data_files": files,
        "shape": list(values[0].shape),
        "torch_dtype": str(values[0].dtype),
        "torch_dtypes": [str(value.dtype) for value in values],
        "numel": values[0].numel(),
    }


def _loaded(folder: Path, entry: Mapping[str, Any], device: torch.device | str) -> Saved:
    tensors = tuple(_tensors(folder, entry, device))
    return tensors[0] if len(tensors) == 1 else tensors


def _tensors(
    folder: Path, entry: Mapping[str, Any], device: torch.device | str
) -> Iterator[torch.Tensor]:
    """Yield the tensors of a node; an entry of another writer has one file."""
    files = entry.get("data_files") or [entry["data_file"]]
    dtypes = entry.get("torch_dtypes") or [entry["torch_dtype"]]
    for file, name in zip(files, dtypes, strict=True):
        dtype = getattr(torch, name.removeprefix("torch."))
        yield torch.from_numpy(np.load(folder / file)).to(device, dtype)
