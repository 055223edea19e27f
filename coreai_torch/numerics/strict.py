"""Limits that need no error analysis: what is nearer to torch than these is right.

They are relative to the values around an element, which have errors of about the same size. A
result beyond them is not wrong, but needs the analysis.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from ..torch_compat import pytree
from .compare import Allowed, widen
from .rounding import Kind, is_float, kind_of
from .tolerance import STRICT

_ROUNDING = (Kind.ROUNDED, Kind.SUM, Kind.GENERAL)
_RARE = 64  # of n values, k may be smaller than k / (64 n) of those around them


def strictly(want: torch.Tensor, *, computed: bool) -> Allowed:
    """Return the limits of a result; zeros, and what no op rounded, must be equal."""
    if not computed or want.dtype not in STRICT or not want.numel():
        return Allowed(torch.zeros(want.shape, dtype=torch.float64))
    size = widen(want).abs()
    size = torch.where(size.isfinite(), size, 0.0)
    around = _around(size)
    if _has_small_values_of_their_own(size / around):
        around = size
    return Allowed(STRICT[want.dtype].limit * torch.where(size > 0, around, 0.0))


def _around(size: torch.Tensor) -> torch.Tensor:
    """Return the largest value along the axis on which the values around an element are smallest.

    So a row of large coordinates does not widen the limits of a row of scores.
    """
    lines = [size.amax(axis, keepdim=True) for axis, length in enumerate(size.shape) if length > 1]
    around = lines[0] if lines else size
    for line in lines[1:]:
        around = torch.minimum(around, line)
    return around.expand(size.shape)


def _has_small_values_of_their_own(ratio: torch.Tensor) -> bool:
    """Return whether values are too small for results of one kind that are near zero by chance.

    `cat([x * 1e6, sin(x)])` has a small error in its second half. Of n normal numbers, about k
    are smaller than k / n times a few of them.
    """
    small = ratio[(ratio > 0) & (ratio < 1 / _RARE)].sort().values
    rank = torch.arange(1, len(small) + 1, dtype=torch.float64)
    return bool((small * _RARE * ratio.numel() < rank).any())


def computed_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes whose elements were all rounded, rather than moved or selected."""
    computed: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and _has_floats(node):
            operands = [n for n in node.all_input_nodes if _has_floats(n)]
            keeps = bool(operands) and computed.issuperset(operands)
            kind = _kind(node)
            if kind in _ROUNDING or (kind is Kind.EXACT and keeps):
                computed.add(node)
    return computed


def _kind(node: fx.Node) -> Kind | None:
    if any("val" not in n.meta for n in node.all_input_nodes):
        return None
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    return kind_of(node.target, args, kwargs, node.meta["val"])


def _has_floats(node: fx.Node) -> bool:
    parts = pytree.tree_leaves(node.meta.get("val"))
    return any(map(is_float, parts))
