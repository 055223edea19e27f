"""Matrix products: rank 4 before hardswish, and scaled probabilities in long attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import (
    LAYOUT,
    Operation,
    called,
    kind,
    made_by,
    numbers,
    producer,
    source,
    users,
)

_AROUND = ("add", "mul", "divide", "cast", "minimum", "maximum", "relu")
_COMPOSITE = "hard_sigmoid"  # clamp(x + 3, 0, 6) / 6
_CLAMPS = ("minimum", "maximum", "relu")
_STEPS = 8
_MANY_KEYS = 4096
_SCALE = 64.0
# Scaled values stay below 32768; the probabilities of a row add up to less than 2.
_LARGEST_SCALED = 512.0


def before_hardswish(op: Operation) -> Sequence[Value] | None:
    """Multiply at rank 4 if a clamp and a product follow."""
    if kind(op) != "batch_matmul" or d.dtype(op.results[0]) != torch.float16:
        return None
    if op.results[0].type.rank != 2 or not _is_gated(op.results[0], _STEPS):
        return None
    x, y = op.operands
    sizes = [d.size(x, 0), d.size(y, 1)]  # of the operands: those of the result come after the op
    product = d.matmul(*(d.reshape(v, [1, 1, *d.sizes(v)]) for v in (x, y)))
    return [d.reshape(product, sizes)]


def _is_gated(value: Value, steps: int) -> bool:
    """Return whether a product with a clamped value depends on this value."""
    for user in users(value):
        if kind(user) == "mul" and any(_is_clamp(factor) for factor in user.operands):
            return True
        if steps and kind(user) in _AROUND and _is_gated(user.results[0], steps - 1):
            return True
    return False


def _is_clamp(value: Value) -> bool:
    found = source(value)
    if found is not None and kind(found) == "invoke":
        return called(found).startswith(_COMPOSITE)
    return found is not None and kind(found) in _CLAMPS


def scaled_attention(op: Operation) -> Sequence[Value] | None:
    """Multiply probabilities of many keys by 64, and the result by 1/64.

    Matrices with a value above 512, an infinity or a NaN are multiplied by 1 instead: the product
    overflows only where the original one does. Both factors are powers of 2, hence exact.
    """
    if kind(op) != "batch_matmul" or d.dtype(op.results[0]) != torch.float16:
        return None
    probabilities, values = op.operands
    if probabilities.type.shape[-1] < _MANY_KEYS or not _sums_to_one(probabilities):
        return None
    axes = [values.type.rank - 2, values.type.rank - 1]
    is_small = d.less(d.reduce_max(d.abs_(values), axes), d.like(values, _LARGEST_SCALED))
    scale = d.where(is_small, d.like(values, _SCALE), d.like(values, 1.0))
    inverse = d.where(is_small, d.like(values, 1 / _SCALE), d.like(values, 1.0))
    return [d.mul(d.matmul(d.mul(probabilities, scale), values), inverse)]


def _sums_to_one(value: Value) -> bool:
    """Return whether a softmax computes the last axis of a value, up to its layout."""
    found, axis, size = producer(value), value.type.rank - 1, value.type.shape[-1]
    while found is not None and kind(found) in LAYOUT:
        operand = found.operands[0].type
        if kind(found) == "transpose":
            axis = numbers(found.operands[1])[axis]
        elif kind(found) != "cast":
            last = found.results[0].type.rank - 1
            if axis != last or operand.rank == 0 or operand.shape[-1] != size:
                return False
            axis = operand.rank - 1
        found = producer(found.operands[0])
    if found is None or kind(found) != "softmax":
        return False
    return bool(numbers(found.operands[1])[0] % found.results[0].type.rank == axis)


def wide_squares(op: Operation) -> Sequence[Value] | None:
    """Compute sums and means of squares in float32 if the result is float16.

    `x.square().float().sum()` has the rounding of float16 squares in a float32 result: it stays.
    """
    if kind(op) not in ("reduce_mean", "reduce_sum") or d.dtype(op.results[0]) != torch.float16:
        return None
    squares = op.operands[0]
    while (cast := made_by(squares, "cast")) is not None:  # x.pow(2) computes in float32
        squares = cast.operands[0]
    square = made_by(squares, "mul", "pow")
    if square is None:
        return None
    x, other = square.operands
    if kind(square) == "mul" and x != other:
        return None
    if kind(square) == "pow" and d.known_number(other) != 2:
        return None
    if not d.dtype(x).is_floating_point:
        return None
    wide = d.cast(x, torch.float32)
    axes = numbers(op.operands[1])
    reduce = d.reduce_mean if kind(op) == "reduce_mean" else d.reduce_sum
    return [d.cast(reduce(d.mul(wide, wide), axes), torch.float16)]
