"""Attention over many keys, one block of keys after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, callee, composite
from .selection import LOWEST

BLOCK = 16384
_MOST = 65504  # keys; the neural engine has no longer axis
_ATTENTION = "scaled_dot_product_attention"
_SCALE = 2.0**-6  # of the weights of blocks, each at most 16384


def apply(op: Operation) -> Sequence[Value] | None:
    """Attend to blocks of 16,384 keys, and mix the results by the sums of their exponentials."""
    declared = _declared(op)
    if declared is None:
        return None
    query, key, value, *masks = op.operands
    keys = key.type.shape[2]
    if any(n < 0 for v in op.operands for n in v.type.shape) or not BLOCK < keys <= _MOST:
        return None
    if query.type.shape[1] != key.type.shape[1] or any(d.is_bool(mask) for mask in masks):
        return None
    scale = re.search(r"scale = ([-+.e\d]+)", declared)
    factor = float(scale[1]) if scale else query.type.shape[3] ** -0.5
    scaled = d.mul(query, d.like(query, factor))
    blocks = [
        _Block(scaled, key, value, masks, start, min(start + BLOCK, keys))
        for start in range(0, keys, BLOCK)
    ]
    return [_mixed(blocks, hides=bool(masks))]


def _declared(op: Operation) -> str | None:
    """Return the declaration of an attention that is neither causal nor windowed nor has sinks."""
    graph = callee(op)
    if graph is None or composite(graph) != _ATTENTION or op.operands[0].type.rank != 4:
        return None
    text = str(graph.attributes["composite_decl"])
    plain = re.search(r"is_causal = (false|0)", text) and re.search(r"window_size = 0\b", text)
    return text if plain and "sinks" not in text else None


class _Block:
    """Attention to some keys: the largest score and the reciprocal of the sum of exponentials."""

    def __init__(
        self,
        query: Value,
        key: Value,
        value: Value,
        masks: Sequence[Value],
        start: int,
        end: int,
    ) -> None:
        keys = d.transpose(d.slice_axis(key, 2, start, end), [0, 1, 3, 2])
        scores = d.matmul(query, keys)
        for mask in masks:
            wide = mask.type.shape[-1] != 1
            at = mask.type.rank - 1
            part = d.slice_axis(mask, at, start, end) if wide else mask
            scores = d.maximum(d.add(scores, part), d.like(scores, LOWEST))
        weights = d.softmax(scores, 3)
        self.largest = d.reduce_max(scores, [3])
        self.reciprocal = d.reduce_max(weights, [3])  # of the key with the largest score
        self.result = d.matmul(weights, d.slice_axis(value, 2, start, end))


def _mixed(blocks: Sequence[_Block], *, hides: bool) -> Value:
    """Return the mean of the results, weighted by the sums of exponentials.

    A query whose keys are all hidden gets zeros, as in torch.
    """
    largest = blocks[0].largest
    for block in blocks[1:]:
        largest = d.maximum(largest, block.largest)
    weights = [
        d.div(d.mul(d.exp(d.sub(b.largest, largest)), d.like(largest, _SCALE)), b.reciprocal)
        for b in blocks
    ]
    total, mixed = weights[0], d.mul(blocks[0].result, weights[0])
    for block, weight in zip(blocks[1:], weights[1:], strict=True):
        total, mixed = d.add(total, weight), d.add(mixed, d.mul(block.result, weight))
    result = d.div(mixed, total)
    if hides:
        seen = d.minimum(d.sub(largest, d.like(largest, LOWEST)), d.like(largest, 1.0))
        result = d.mul(result, seen)
    return result
