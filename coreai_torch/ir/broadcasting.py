"""Broadcasting and reductions of operands whose sizes may be zero at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import RankedTensorType, Value

from . import types
from .build import Build
from .removable import made_by


def broadcast_operands(*given: Value) -> Sequence[Value]:
    """Return the operands of a broadcasting op, expanded explicitly where a size may be zero.

    The runtime broadcasts a size of 0 to 1, and the process aborts: `Cannot broadcast dim 0 to 1`
    (coreai-core 1.0.0b2).
    """
    operands = _without_broadcasts(given)
    if not Build.current().zero_sizes.possible:
        return operands
    rank = max(x.type.rank for x in operands)
    if not rank:
        return operands
    sources = [_source(operands, axis) for axis in range(-rank, 0)]
    extents = [x.type.shape[x.type.rank + axis] for x, axis in sources]
    if types.DYNAMIC not in extents or all(_fills(x, extents) for x in operands):
        return operands
    shape = _shape(sources, extents)
    return [x if _fills(x, extents) else _expanded(x, shape, extents) for x in operands]


def _without_broadcasts(operands: Sequence[Value]) -> Sequence[Value]:
    """Replace operands that were broadcast by what they were made of, if the op does the same.

    The rewrite of coreai-core does so too, but not soundly (`asset.mlir_module.UNSOUND`).
    """
    found = list(operands)
    for i, x in enumerate(found):
        source = _before_broadcast(x)
        rest = [tuple(other.type.shape) for other in (*found[:i], *found[i + 1 :])]
        if source is None or any(types.DYNAMIC in shape for shape in rest):
            continue
        shape = tuple(source.type.shape)
        if torch.broadcast_shapes(shape, *rest) == torch.broadcast_shapes(x.type.shape, *rest):
            found[i] = source
    return found


def _before_broadcast(x: Value) -> Value | None:
    """Return the operand of a static broadcast, or of an op that adds leading axes of size 1."""
    name = made_by(x)
    if name not in ("coreai.broadcast_to", "coreai.expand_dims"):
        return None
    source = x.owner.operands[0]
    before, after = list(source.type.shape), list(x.type.shape)
    if types.DYNAMIC in (*before, *after):
        return None
    leading = [1] * (len(after) - len(before))
    return source if name == "coreai.broadcast_to" or after == [*leading, *before] else None


def or_identity(reduced: Value, x: Value, axes: Sequence[int], identity: float | bool) -> Value:
    """Return `reduced`, or `identity` if the reduced axes of `x` are empty at run time.

    The runtime leaves the result of an empty reduction unwritten: `x[x > 9].sum()` would be
    whatever was in memory (coreai-core 1.0.0b2).
    """
    empty = _is_empty_along(x, axes)
    if empty is None:
        return reduced
    # Integers have no infinity; torch raises for the maximum of an empty integer tensor.
    dtype = types.dtype_of(x.type)
    finite = identity if dtype.is_floating_point or math.isfinite(identity) else 0
    operands = broadcast_operands(empty, Build.current().number(finite, dtype), reduced)
    return gen.BroadcastingWhere(*operands).result


def _is_empty_along(x: Value, axes: Sequence[int]) -> Value | None:
    """Return whether the axes are empty at run time; None if they never are."""
    dynamic = [axis % x.type.rank for axis in axes if x.type.shape[axis] == types.DYNAMIC]
    if not dynamic or not Build.current().zero_sizes.possible:
        return None
    number = Build.current().number
    lengths = _joined([_length(x, axis) for axis in dynamic])
    empty = gen.BroadcastingEqual(lengths, number([0], torch.uint32)).result
    return empty if len(dynamic) == 1 else gen.AnyOp(empty, number([0], torch.int32)).result


def _source(operands: Sequence[Value], axis: int) -> tuple[Value, int]:
    """Return the operand that decides the size of an axis: a dynamic size, or one other than 1."""
    having = [x for x in operands if x.type.rank >= -axis]
    lengths = [x.type.shape[x.type.rank + axis] for x in having]
    best = next((i for i, n in enumerate(lengths) if n == types.DYNAMIC), None)
    if best is None:
        best = next((i for i, n in enumerate(lengths) if n != 1), 0)
    return having[best], axis


def _fills(x: Value, extents: Sequence[int]) -> bool:
    """Whether an operand is broadcast along no dynamic size."""
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


def _expanded(x: Value, shape: Value, extents: Sequence[int]) -> Value:
    type_ = RankedTensorType.get(extents, x.type.element_type)
    return gen.BroadcastToOp(x, shape, results=[type_]).result
