"""Operands of sizes that may turn out to be zero when the program runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import RankedTensorType, Value

from . import types
from .build import Build


def met(*operands: Value) -> Sequence[Value]:
    """Operands of a broadcasting op, laid out where a size may be zero.

    The run time stretches a size of 0 to meet a 1, and dies of it: `Cannot broadcast dim 0 to 1`.
    """
    if not Build.current().may_be_empty:
        return operands
    rank = max(x.type.rank for x in operands)
    if not rank:
        return operands
    sources = [_source(operands, axis) for axis in range(-rank, 0)]
    extents = [x.type.shape[x.type.rank + axis] for x, axis in sources]
    if types.DYNAMIC not in extents or all(_fills(x, extents) for x in operands):
        return operands
    shape = _shape(sources, extents)
    return [x if _fills(x, extents) else _laid_out(x, shape, extents) for x in operands]


def or_of_none(reduced: Value, x: Value, axes: Sequence[int], of_none: float | bool) -> Value:
    """What was made of all elements along axes of `x`, or `of_none` if there turn out to be none.

    The run time leaves the result unwritten then: `x[x > 9].sum()` would be what was in memory.
    """
    none = _nothing_along(x, axes)
    if none is None:
        return reduced
    # Torch has no greatest integer of none, and raises.
    dtype = types.dtype_of(x.type)
    answer = of_none if dtype.is_floating_point or math.isfinite(of_none) else 0
    return gen.BroadcastingWhere(*met(none, Build.current().number(answer, dtype), reduced)).result


def _nothing_along(x: Value, axes: Sequence[int]) -> Value | None:
    """Whether the axes turn out to hold no element; None if they always hold one."""
    open_ = [axis % x.type.rank for axis in axes if x.type.shape[axis] == types.DYNAMIC]
    if not open_ or not Build.current().may_be_empty:
        return None
    number = Build.current().number
    lengths = _joined([_length(x, axis) for axis in open_])
    none = gen.BroadcastingEqual(lengths, number([0], torch.uint32)).result
    return none if len(open_) == 1 else gen.AnyOp(none, number([0], torch.int32)).result


def _source(operands: Sequence[Value], axis: int) -> tuple[Value, int]:
    """The operand that says how long an axis is: one of a size that is open, or is not one."""
    having = [x for x in operands if x.type.rank >= -axis]
    lengths = [x.type.shape[x.type.rank + axis] for x in having]
    best = next((i for i, n in enumerate(lengths) if n == types.DYNAMIC), None)
    if best is None:
        best = next((i for i, n in enumerate(lengths) if n != 1), 0)
    return having[best], axis


def _fills(x: Value, extents: Sequence[int]) -> bool:
    """Whether nothing of it is to be stretched along an open size."""
    missing = [1] * (len(extents) - x.type.rank)
    own = [*missing, *x.type.shape]
    return all(n == types.DYNAMIC or m != types.DYNAMIC for n, m in zip(own, extents, strict=True))


def _shape(sources: Sequence[tuple[Value, int]], extents: Sequence[int]) -> Value:
    first = sources[0][0]
    if first.type.rank == len(sources) and all(x == first for x, _ in sources):
        return gen.GetShapeOp(first).result
    number = Build.current().number
    parts = []
    for (x, axis), extent in zip(sources, extents, strict=True):
        if extent != types.DYNAMIC:
            parts.append(number([extent], torch.uint32))
            continue
        parts.append(_length(x, x.type.rank + axis))
    return _joined(parts)


def _length(x: Value, axis: int) -> Value:
    bounds = (Build.current().number([n], torch.int32) for n in (axis, axis + 1, 1))
    return gen.SliceOp(gen.GetShapeOp(x).result, *bounds).result


def _joined(parts: Sequence[Value]) -> Value:
    along = Build.current().number(0, torch.int32)
    return parts[0] if len(parts) == 1 else gen.ConcatOp(along, parts).result


def _laid_out(x: Value, shape: Value, extents: Sequence[int]) -> Value:
    type_ = RankedTensorType.get(extents, x.type.element_type)
    return gen.BroadcastToOp(x, shape, results=[type_]).result
