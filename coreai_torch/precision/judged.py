"""Choose the values of a program by which half precision is judged.

The outputs alone are not enough: boxes of 640 pixels hide wrong scores in the same tensor, and the
error of an integer says nothing about the number that it was made from.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from .defaults import op_name, tensors

_MOVES = (
    *("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze"),
    *("clone", "alias", "_to_copy", "unflatten", "flip", "roll"),
)


def judged(program: torch.export.ExportedProgram) -> list[str]:
    """Return the nodes whose error is measured besides that of the outputs."""
    found: dict[str, None] = {}
    for node in program.graph.find_nodes(op="output")[0].all_input_nodes:
        sources = [node] if _is_float(node) else list(_float_sources(node))
        for source in sources:
            if not _is_float(node):
                found[source.name] = None
            found.update((part.name, None) for part in _parts(source))
    return list(found)


def _base(node: fx.Node) -> str:
    return op_name(node).partition(".")[0] if node.op == "call_function" else ""


def _is_float(node: fx.Node) -> bool:
    return any(value.is_floating_point() for value in tensors(node))


def _parts(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the operands of the concatenation that a value is, through views and copies."""
    while _base(node) in _MOVES:
        node = node.all_input_nodes[0]
    if _base(node) not in ("cat", "stack"):
        return
    for part in node.all_input_nodes:
        if _is_float(part):
            yield part
            yield from _parts(part)


def _float_sources(output: fx.Node) -> Iterator[fx.Node]:
    """Yield the floats that an integer or bool is computed from."""
    seen, open_ = {output}, [output]
    while open_:
        for given in open_.pop().all_input_nodes:
            if given in seen:
                continue
            seen.add(given)
            if _is_float(given):
                yield given
            else:
                open_.append(given)
