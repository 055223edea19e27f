"""Sort and search in float32, and find a maximum without argmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind, known, rebuilt

_EXACT = 1 << 24  # integers up to here are exact in float32


def in_float32(op: Operation) -> Sequence[Value] | None:
    """Replace sort, argsort and argmax of float16."""
    if kind(op) not in ("sort", "argsort", "argmax"):
        return None
    if d.dtype(op.operands[0]) != torch.float16:
        return None
    operands = [d.cast(op.operands[0], torch.float32), *list(op.operands)[1:]]
    result = op.results[0]
    if d.dtype(result) != torch.float16:
        return rebuilt(op, operands)
    wide = d.RankedTensorType.get(result.type.shape, operands[0].type.element_type)
    return [d.cast(rebuilt(op, operands, [wide])[0], torch.float16)]


def without_argmax(op: Operation) -> Sequence[Value] | None:
    """Replace argmax by the smallest position that has the maximum."""
    axis = known(op.operands[1]) if kind(op) == "argmax" else None
    if axis is None:
        return None
    x = op.operands[0]
    at = int(axis) % x.type.rank
    size = x.type.shape[at]
    if not 0 < size < _EXACT:
        return None
    if d.is_float(x):  # argmax ignores NaN
        x = d.where(d.equal(x, x), x, d.like(x, -math.inf))
    shape = [size if i == at else 1 for i in range(x.type.rank)]
    positions = torch.arange(size, dtype=torch.float32).reshape(shape)
    found = d.equal(x, d.reduce_max(x, [at]))
    first = d.where(found, d.tensor_constant(positions), d.constant(float(size), torch.float32))
    return [d.raw_cast(d.reduce_min(first, [at]), d.dtype(op.results[0]))]
