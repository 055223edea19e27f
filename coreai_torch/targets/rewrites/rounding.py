"""Round without the ops that the GPU skips: floors as quotients by 2."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind, known

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def apply(op: Operation) -> Sequence[Value] | None:
    """Replace `round` and floor division by 1."""
    if kind(op) == "round" and d.dtype(op.operands[0]) in _FLOATS:
        return [rounded(op.operands[0])]
    if kind(op) != "floor_divide" or d.dtype(op.operands[0]) not in _FLOATS:
        return None
    divisor = known(op.operands[1])
    if divisor is None or not divisor.numel() or not bool((divisor == 1).all()):
        return None
    x = op.operands[0]
    return [within_fractions(x, floor(x))] if x.type == op.results[0].type else None


def floor(x: Value) -> Value:
    """Return the floor of numbers that `within_fractions` accepts; twice a number is exact."""
    return d.floor_divide(d.mul(x, d.like(x, 2.0)), d.like(x, 2.0))


def within_fractions(x: Value, result: Value) -> Value:
    """Return `result` where `x` may have a fraction, else `x`: large numbers, infinities, NaN."""
    limit = 1.0 / torch.finfo(d.dtype(x)).eps
    return d.where(d.greater(d.like(x, limit), d.abs_(x)), result, x)


def rounded(x: Value) -> Value:
    """Round to the nearest integer, ties to even."""
    low = floor(x)
    fraction = d.sub(x, low)
    half, one, zero = (d.like(x, number) for number in (0.5, 1.0, 0.0))
    odd = d.sub(low, d.mul(d.floor_divide(low, d.like(x, 2.0)), d.like(x, 2.0)))
    at_tie = d.where(d.equal(fraction, half), odd, zero)
    step = d.where(d.greater(fraction, half), one, at_tie)
    result = d.add(low, step)
    signed = d.where(d.equal(result, zero), d.mul(x, zero), result)  # -0.3 becomes -0.0
    return within_fractions(x, signed)


def truncated(x: Value) -> Value:
    """Round towards zero."""
    zero = d.like(x, 0.0)
    size = floor(d.abs_(x))
    return within_fractions(x, d.where(d.greater(zero, x), d.neg(size), size))
