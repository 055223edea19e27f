"""Expand operands before a sum, and keep two dequantized factors apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind, rebuilt, source


def expanded_sum(op: Operation) -> Sequence[Value] | None:
    """Expand a column and a row of one length before they are added."""
    if kind(op) not in ("add", "sub") or len(op.operands) < 2:
        return None
    first, second = (tuple(v.type.shape) for v in op.operands)
    if len(first) < 2 or not second:
        return None
    column, row = first[-2:], (1, *second)[-2:]
    if not (column[1] == row[0] == 1 and column[0] == row[1] != 1):
        return None
    shape = op.results[0].type.shape
    if any(size < 0 for size in shape):
        return None
    return rebuilt(op, [d.broadcast_to(v, list(shape)) for v in op.operands])


def separated_factors(op: Operation) -> Sequence[Value] | None:
    """Clamp one of two dequantized factors to the range of its dtype, which changes nothing."""
    if kind(op) != "mul" or not d.is_float(op.results[0]):
        return None
    found = [source(value) for value in op.operands]
    if not all(f is not None and kind(f) == "dequantize" for f in found):
        return None
    first, second = op.operands
    lowest = torch.finfo(d.dtype(first)).min
    return rebuilt(op, [d.maximum(first, d.like(first, lowest)), second])
