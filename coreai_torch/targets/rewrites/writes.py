"""Writes at positions that are known only at run time."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import LAYOUT, Operation, kind, known, producer, rebuilt


def blended(op: Operation) -> Sequence[Value] | None:
    """Write a slice by selecting, at each position, the new or the old element."""
    if kind(op) != "slice_update" or all(known(v) is not None for v in list(op.operands)[1:3]):
        return None
    x, starts, _, strides, update = op.operands
    steps = known(strides)
    shape, part = list(x.type.shape), list(update.type.shape)
    if steps is None or not bool((steps == 1).all()) or any(n < 0 for n in (*shape, *part)):
        return None
    moving = [axis for axis, n in enumerate(shape) if part[axis] != n]
    if not moving:
        return [update]
    if len(moving) > 1:
        return None
    (axis,) = moving
    return [_selected(x, update, d.slice_(starts, [axis], [axis + 1]), axis)]


def _selected(x: Value, update: Value, start: Value, axis: int) -> Value:
    """Return `x` with `update` from position `start` of an axis on."""
    size, count = x.type.shape[axis], update.type.shape[axis]
    line = [size if i == axis else 1 for i in range(x.type.rank)]
    positions = d.tensor_constant(torch.arange(size, dtype=torch.int32).reshape(line))
    first = _clamped_start(d.reshape(start, [1] * x.type.rank), size, count)
    offset = d.sub(positions, first)
    if count == 1:
        return d.where(d.equal(offset, d.constant(0, torch.int32)), update, x)
    inside = d.minimum(d.maximum(offset, d.like(offset, 0)), d.like(offset, count - 1))
    moved = d.gather_along_axis(update, d.broadcast_to(inside, list(x.type.shape)), axis)
    return d.where(d.equal(inside, offset), moved, x)


def _clamped_start(start: Value, size: int, count: int) -> Value:
    """Return the position that the op starts at; a negative one counts from the end."""
    from_end = d.add(start, d.like(start, size))
    start = d.where(d.greater(d.like(start, 0), start), from_end, start)
    return d.minimum(d.maximum(start, d.like(start, 0)), d.like(start, size - count))


def clamped_scatter(op: Operation) -> Sequence[Value] | None:
    """Clamp the indices of a scatter to the size of the axis."""
    if kind(op) != "scatter_along_axis":
        return None
    x, indices, _, axis = op.operands
    at = known(axis)
    if at is None or _is_safe(indices, x.type.shape[int(at)]):
        return None
    last = d.sub(d.cast(_length(x, int(at)), d.dtype(indices)), d.like(indices, 1))
    inside = d.minimum(d.maximum(indices, d.like(indices, 0)), last)
    return rebuilt(op, [x, inside, *list(op.operands)[2:]])


def _length(x: Value, axis: int) -> Value:
    size = d.size(x, axis)
    return d.constant(size, torch.int32) if isinstance(size, int) else size


def _is_safe(indices: Value, size: int) -> bool:
    """Return whether indices are constant, clamped already, or an order of few elements."""
    found, last = _before_slices(indices)
    if found is None or kind(found) not in ("argsort", "argmax"):
        return found is not None and kind(found) in ("constant", "minimum", "maximum")
    axis = known(found.operands[1])
    length = 0 if axis is None else found.operands[0].type.shape[int(axis)]
    return 0 < length <= size and last in (None, length - 1)


def _before_slices(indices: Value) -> tuple[Operation | None, int | None]:
    """Return the op that computes indices, and `last` if they are `last - indices`."""
    found, last = producer(indices), None
    while found is not None and kind(found) in (*LAYOUT, "slice", "reverse", "sub"):
        operand = found.operands[0]
        if kind(found) == "sub":  # a descending order counts from the last element
            offset = known(operand)
            if last is not None or offset is None or offset.numel() != 1:
                return found, last
            last, operand = int(offset), found.operands[1]
        found = producer(operand)
    return found, last
