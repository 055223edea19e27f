"""Find the nodes whose operands or results may have no elements.

The runtime fails on most ops with an empty operand (coreai-core 1.0.0b2): it broadcasts a size of
0 to 1, leaves the result of a reduction unwritten, and ends the process in a scatter. A lowering
that may meet such sizes guards against them, which costs ops; this pass says where.

Tensors whose sizes are all static and that are empty are constants: `fold_constants` replaced them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from ...torch_compat import has_symbolic_sizes
from ..pass_graph import PassGraph, Replacement
from .emitting import Empty


def zero_size(graph: PassGraph) -> PassGraph:
    """Record the calls around which a size may be zero; a static graph gets no entries."""
    seen: dict[fx.Node, bool] = {}
    found: set[fx.Node] = set()
    replaced: dict[fx.Node, Replacement] = dict(graph.replaced)
    for node in graph.calls:
        for near in (node, *node.all_input_nodes):
            if near not in seen:
                seen[near] = _is_dynamic_or_empty(near.meta.get("val"))
            if seen[near]:
                if may_be_empty(node):
                    found.add(node)
                if (empty := _empty(node, graph)) is not None:
                    replaced[node] = empty
                break
    if not found and len(replaced) == len(graph.replaced):
        return graph
    return replace(graph, may_be_empty=found, replaced=replaced)


def _is_dynamic_or_empty(val: Any) -> bool:
    if isinstance(val, torch.Tensor):
        return has_symbolic_sizes(val) or not val.numel()
    return isinstance(val, list | tuple) and any(map(_is_dynamic_or_empty, val))


def _empty(node: fx.Node, graph: PassGraph) -> Empty | None:
    """Return what is empty around a call, whatever the dynamic sizes are."""
    results = list(_each(node.meta.get("val")))
    operands = [n.meta.get("val") for n in node.all_input_nodes if n not in graph.constants]
    no_results = bool(results) and all(map(is_empty, results))
    no_operands = bool(operands) and all(map(is_empty, operands)) and not graph.is_custom(node)
    if node in graph.replaced or not (no_results or no_operands):
        return None
    return Empty(node.all_input_nodes, no_results, no_operands)


def _each(val: Any) -> Sequence[Any]:
    return val if isinstance(val, list | tuple) else (val,)


def may_be_empty(node: fx.Node) -> bool:
    """Whether a dynamic size of an operand or result of a node may be zero at run time."""
    vals = (n.meta.get("val") for n in (node, *node.all_input_nodes))
    return any(_has_zero_size(v) for val in vals for v in _each(val))


def is_empty(val: Any) -> bool:
    """Whether a tensor has no elements, whatever its dynamic sizes are."""
    if not isinstance(val, torch.Tensor):
        return False
    if not has_symbolic_sizes(val):  # a tenth of the cost of reading the shape
        return bool(val.numel() == 0)
    return any(type(size) is int and size == 0 for size in val.shape)


def _has_zero_size(val: Any) -> bool:
    if not isinstance(val, torch.Tensor) or not has_symbolic_sizes(val):
        return False
    return any(isinstance(size, torch.SymInt) and _may_be_zero(size) for size in val.shape)


def _may_be_zero(size: torch.SymInt) -> bool:
    """Whether a size depends on data, or on an expression with a lower bound of zero.

    `x[2:-1]` of a dynamic size may be empty. The dynamic size itself is at least two:
    `torch.export` assumes that.
    """
    expression = size.node.expr
    if expression.is_Symbol and not free_unbacked_symbols(size):
        return False
    known = _POSITIVE.setdefault(size.node.shape_env, {})
    if expression not in known:  # 0.1 ms each
        known[expression] = size.node.shape_env.bound_sympy(expression).lower > 0
    return not known[expression]


_POSITIVE: WeakKeyDictionary[ShapeEnv, dict[Any, bool]] = WeakKeyDictionary()
