"""Operands of outer comparisons, expanded faster than the runtime broadcasts them.

A comparison of operands with different sizes takes 4.7 ns for each element: the compiler expands
them by `broadcast_in_dims`. From a row, `broadcast_to` takes 2 ns, and a comparison of equal sizes
1 ns (coreai-core 1.0.0b3, x86).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Value

from . import shapes, types
from .build import Build

_MANY, _SHORTEST_ROW = 4_096, 64  # smaller results and shorter rows gain nothing
_MOST = 1 << 23  # elements of a result: each expanded operand takes 32 MB


def expanded(x: Value, y: Value) -> tuple[Value, Value]:
    """Return both operands in their common sizes, if these are static and that is faster.

    If one operand has these sizes, as in `x > 0`, it stays one op: a device fuses that.
    """
    if x.type.shape == y.type.shape or not (x.type.has_static_shape and y.type.has_static_shape):
        return x, y
    dims = _common_sizes(x, y)
    if dims in (list(x.type.shape), list(y.type.shape)):
        return x, y
    if not _MANY <= math.prod(dims) <= _MOST or dims[-1] < _SHORTEST_ROW:
        return x, y
    if shapes.is_constant(x) and shapes.is_constant(y):
        return x, y
    first, second = (_as_rows(value, dims) for value in (x, y))
    if first is None or second is None:
        return x, y
    return shapes.broadcast_to(first, dims), shapes.broadcast_to(second, dims)


def _common_sizes(x: Value, y: Value) -> list[int]:
    rank = max(x.type.rank, y.type.rank)
    padded = ([1] * (rank - v.type.rank) + list(v.type.shape) for v in (x, y))
    return [b if a == 1 else a for a, b in zip(*padded, strict=True)]


def _as_rows(x: Value, dims: Sequence[int]) -> Value | None:
    """Return an operand whose last axis has its final size, or None if that takes too long."""
    if x.type.rank and x.type.shape[-1] == dims[-1]:
        return x
    if not x.type.rank:
        row = shapes.as_row(x, dims[-1])
        return row if row.type.rank else None
    dtype = types.dtype_of(x.type)
    if dtype != torch.int32 or shapes.is_constant(x):
        return None
    # A sum with zeros expands a column in 2 ns, `broadcast_to` in 10 ns.
    zeros = Build.current().tensor(torch.zeros((), dtype=dtype).expand([dims[-1]]), "filler")
    return gen.BroadcastingAdd(x, zeros).result
