"""Replace the extremes of int64 by those of int32 where they are fillers.

Masked reductions fill what they skip with `torch.iinfo(torch.int64).min`. As the operand of a
maximum, minimum, `where` or comparison, or as what is written to a part of a tensor, such a number
means "below all others", which the least int32 means too. Elsewhere it is refused, as any number
beyond 32 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ..ir.constants import fillers_narrowed
from ..torch_compat import OpOverload
from .pass_graph import PassGraph

# fmt: off
_READS = {
    "amax", "amin", "cat", "clamp", "clamp_max", "clamp_min", "constant_pad_nd", "copy", "eq",
    "fmax", "fmin", "ge", "gt", "index_copy", "index_fill", "le", "lt", "masked_fill",
    "masked_scatter", "max", "maximum", "min", "minimum", "ne", "select_scatter", "slice_scatter",
    "where",
}
_MOVES = {
    "alias", "clone", "detach", "expand", "full", "full_like", "lift_fresh_copy", "new_full",
    "permute", "reshape", "scalar_tensor", "select", "slice", "squeeze", "transpose", "unsqueeze",
    "view",
}
# fmt: on
_REDUCED = ("scatter", "scatter_reduce", "index_reduce")  # also with amax and amin
_EXTREMES = (torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max)


def fillers(graph: PassGraph) -> PassGraph:
    """Narrow the constants that are fillers, and record the calls whose numbers are fillers."""
    constants = dict(graph.constants)
    for node, value in graph.constants.items():
        if isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.uint64):
            narrowed = fillers_narrowed(value)
            if narrowed is not value and _is_filler(node, graph.constants):
                constants[node] = narrowed
    found = frozenset(node for node in graph.calls if _has_filler(node, graph.constants))
    return replace(graph, constants=constants, fillers=found)


def _has_filler(node: fx.Node, folded: Collection[fx.Node]) -> bool:
    if not any(type(n) in (int, float) and n in _EXTREMES for n in _numbers(node)):
        return False
    return _reads(node) or (_name(node) in _MOVES and _is_filler(node, folded))


def _numbers(node: fx.Node) -> Iterator[Any]:
    yield from node.args
    yield from node.kwargs.values()


def _is_filler(node: fx.Node, folded: Collection[fx.Node]) -> bool:
    """Return whether all ops that read a node, also through views, read it as a filler."""
    readers = [user for user in node.users if user not in folded]
    return all(_reads(r) or (_name(r) in _MOVES and _is_filler(r, folded)) for r in readers)


def _reads(node: fx.Node) -> bool:
    name = _name(node)
    if name == "index_put":
        return len(node.args) < 4 or not node.args[3]
    if name in _REDUCED:
        kinds = [a for a in _numbers(node) if isinstance(a, str)]
        return all(kind in ("amax", "amin") for kind in kinds)
    return name in _READS


def _name(node: fx.Node) -> str:
    target = node.target
    is_aten = isinstance(target, OpOverload) and target.namespace == "aten"
    return str(target.overloadpacket.__name__) if is_aten else ""
