"""Write the graph after each pass to a readable file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.fx as fx

from ..errors import module_path, target_name
from .pass_graph import PassGraph

_VALUES_SHOWN = 8


class PassDump:
    """Writes numbered files for one entry point: `00-captured.txt`, `01-externalize.txt`, ..."""

    def __init__(self, folder: Path, entrypoint: str) -> None:
        self._entrypoint = entrypoint
        self._folder = folder / re.sub(r"[^\w.-]", "_", entrypoint)
        self._folder.mkdir(parents=True, exist_ok=True)
        for old in self._folder.glob("[0-9][0-9]-*.txt"):
            old.unlink()
        self._count = 0

    def __call__(self, name: str, graph: PassGraph) -> None:
        """Write the graph as the named pass left it."""
        path = self._folder / f"{self._count:02d}-{name}.txt"
        title = f"# {self._entrypoint}, after {name}\n"
        path.write_text(title + graph_text(graph), encoding="utf-8")
        self._count += 1


def graph_text(graph: PassGraph) -> str:
    """Return the tables and the remaining calls of a graph as text."""
    sections = {
        "arguments": [f"%{node.name}: {_val(node)}" for node in graph.arguments],
        "constants": [_constant(n, value, graph.names) for n, value in graph.constants.items()],
        "calls": [_call(node, graph) for node in graph.calls],
        "results": [str(_argument(result)) for result in graph.results],
    }
    return "".join(_section(title, lines) for title, lines in sections.items())


def _section(title: str, lines: Iterable[str]) -> str:
    listed = list(lines)
    return "\n".join([f"\n{title}: {len(listed)}", *(f"    {line}" for line in listed)]) + "\n"


def _call(node: fx.Node, graph: PassGraph) -> str:
    """Return one line for a call, with what the passes recorded about it."""
    args = [str(_argument(a)) for a in node.args]
    args += [f"{name}={_argument(a)}" for name, a in node.kwargs.items()]
    line = f"%{node.name}: {_val(node)} = {target_name(node.target)}({', '.join(args)})"
    notes = []
    if node in graph.region_at:
        region = graph.region_at[node]
        notes.append(f"region of {region.match.path or 'the model'}, {len(region.body)} nodes")
    if node in graph.replaced:
        notes.append(str(graph.replaced[node]))
    if node in graph.may_be_empty:
        notes.append("may be empty")
    if path := module_path(node):
        notes.append(path)
    return f"{line}  # {'; '.join(notes)}" if notes else line


def _argument(given: Any) -> Any:
    if isinstance(given, fx.Node):
        return f"%{given.name}"
    if isinstance(given, list | tuple):
        return f"[{', '.join(str(_argument(part)) for part in given)}]"
    return repr(given)


def _constant(node: fx.Node, value: Any, names: Mapping[fx.Node, str]) -> str:
    name = f" ({names[node]})" if node in names else ""
    return f"%{node.name}: {_describe(value)}{name}"


def _describe(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_describe, value))}]"
    if isinstance(value, fx.GraphModule):
        return f"graph of {len(value.graph.nodes)} nodes"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    values = f" = {value.tolist()}" if 0 < value.numel() <= _VALUES_SHOWN else ""
    return f"{_type(value)}{values}"


def _val(node: fx.Node) -> str:
    val = node.meta.get("val")
    parts = val if isinstance(val, list | tuple) else [val]
    return ", ".join(_type(part) for part in parts)


def _type(val: Any) -> str:
    if isinstance(val, torch.Tensor):
        return f"{str(val.dtype).removeprefix('torch.')}{list(val.shape)}"
    return "None" if val is None else f"{type(val).__name__} {val}"
