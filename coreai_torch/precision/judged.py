"""Choose the values of a program by which half precision is judged.

The outputs alone are not enough: boxes of 640 pixels hide wrong scores in the same tensor, and the
error of an integer says nothing about the number that it was made from.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from .nodes import MOVES, base, is_float


def judged(program: torch.export.ExportedProgram) -> list[str]:
    """Return the nodes whose error is measured besides that of the outputs."""
    found: dict[str, None] = {}
    for node in program.graph.find_nodes(op="output")[0].all_input_nodes:
        sources = [node] if is_float(node) else list(_float_sources(node))
        for source in sources:
            if not is_float(node):
                found[source.name] = None
            found.update((part.name, None) for part in _parts(source))
    return list(found)


def _parts(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the operands of the concatenation that a value is, through views and copies."""
    while base(node) in MOVES:
        node = node.all_input_nodes[0]
    if base(node) not in ("cat", "stack"):
        return
    for part in node.all_input_nodes:
        if is_float(part):
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
            if is_float(given):
                yield given
            else:
                open_.append(given)
