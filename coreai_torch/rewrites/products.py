"""Matrix products: rank 4 before hardswish, and scaled probabilities in long attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..ir import dialect as d
from ..ir.dialect import Value
from ..ir.editing import Operation, kind, made_by, numbers, producer, users

_AROUND = ("add", "mul", "divide", "cast", "minimum", "maximum", "relu")
_CLAMPS = ("minimum", "maximum", "relu")
_LAYOUT = ("cast", "reshape", "transpose", "expand_dims", "shrink_dims", "broadcast_to")
_STEPS = 8
_MANY_KEYS = 4096
_SCALE = 64.0


def before_hardswish(op: Operation) -> Sequence[Value] | None:
    """Multiply at rank 4 if a clamp and a product follow."""
    if kind(op) != "batch_matmul" or d.dtype(op.results[0]) != torch.float16:
        return None
    if op.results[0].type.rank != 2 or not _is_gated(op.results[0], _STEPS):
        return None
    x, y = (d.reshape(v, [1, 1, *d.sizes(v)]) for v in op.operands)
    return [d.reshape(d.matmul(x, y), d.sizes(op.results[0]))]


def _is_gated(value: Value, steps: int) -> bool:
    """Return whether a product with a clamped value depends on this value."""
    for user in users(value):
        if kind(user) == "mul" and any(_is_clamp(factor) for factor in user.operands):
            return True
        if steps and kind(user) in _AROUND and _is_gated(user.results[0], steps - 1):
            return True
    return False


def _is_clamp(value: Value) -> bool:
    found = _origin(value)
    return found is not None and kind(found) in _CLAMPS


def _origin(value: Value) -> Operation | None:
    found = producer(value)
    while found is not None and kind(found) in _LAYOUT:
        found = producer(found.operands[0])
    return found


def scaled_attention(op: Operation) -> Sequence[Value] | None:
    """Multiply probabilities of many keys by 64, and the result by 1/64."""
    if kind(op) != "batch_matmul" or d.dtype(op.results[0]) != torch.float16:
        return None
    probabilities, values = op.operands
    found = _origin(probabilities)
    if found is None or kind(found) != "softmax" or probabilities.type.shape[-1] < _MANY_KEYS:
        return None
    scaled = d.mul(probabilities, d.like(probabilities, _SCALE))
    product = d.matmul(scaled, values)
    return [d.mul(product, d.like(product, 1 / _SCALE))]


def wide_squares(op: Operation) -> Sequence[Value] | None:
    """Compute sums and means of squares of float16 in float32."""
    if kind(op) not in ("reduce_mean", "reduce_sum") or d.dtype(op.results[0]) != torch.float16:
        return None
    square = made_by(op.operands[0], "mul", "pow")
    if square is None:
        return None
    x, other = square.operands
    if kind(square) == "mul" and x != other:
        return None
    if kind(square) == "pow" and d.known_number(other) != 2:
        return None
    wide = d.cast(x, torch.float32)
    axes = numbers(op.operands[1])
    reduce = d.reduce_mean if kind(op) == "reduce_mean" else d.reduce_sum
    return [d.cast(reduce(d.mul(wide, wide), axes), torch.float16)]
