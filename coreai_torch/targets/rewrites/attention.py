"""Attention composites that compilers reject: with a mask, or as plain ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir import editing
from ...mlir.editing import Operation, kind

_ATTENTION = "scaled_dot_product_attention"
_WIDE_HEAD = 512


def _called(op: Operation) -> Operation | None:
    """Return the graph of the attention that an op calls."""
    graph = editing.callee(op)
    return graph if editing.composite(graph) == _ATTENTION else None


def with_mask(op: Operation) -> Sequence[Value] | None:
    """Pass a mask of zeros that the compiler cannot fold; causal attention becomes plain ops."""
    graph = _called(op) if len(op.operands) == 3 else None
    if graph is None:
        return None
    query, key, _ = op.operands
    declared = editing.with_input(graph, "attn_mask")
    if declared is None or query.type.rank != 4:
        return editing.inlined(op, graph)
    mask = _zeros(query, key)
    new, argument = editing.with_argument(graph, "attn_mask", mask.type, declared)
    scores = next(o for o in editing.ops_of(new) if kind(o) == "softmax")
    with editing.before(scores, new):
        scores.operands[0] = d.add(
            scores.operands[0], d.cast(argument, d.dtype(scores.operands[0]))
        )
    return editing.invoke(new, [*op.operands, mask])


def _zeros(query: Value, key: Value) -> Value:
    """Return zeros for each pair of query and key: whether an element exceeds infinity."""
    one = d.slice_(query, [0] * 4, [1] * 4)
    zero = d.cast(d.greater(one, d.like(one, math.inf)), d.dtype(query))
    return d.broadcast_to(zero, [1, 1, d.size(query, 2), d.size(key, 2)])


def with_equal_heads(op: Operation) -> Sequence[Value] | None:
    """Emit plain ops where queries and values have different head sizes."""
    graph = _called(op)
    if graph is None or op.operands[0].type.shape[-1] == op.operands[2].type.shape[-1]:
        return None
    return editing.inlined(op, graph)


def without_wide_heads(op: Operation) -> Sequence[Value] | None:
    """Emit plain ops where the head size is large."""
    graph = _called(op)
    if graph is None or op.operands[0].type.shape[-1] < _WIDE_HEAD:
        return None
    return editing.inlined(op, graph)
