"""Tensors of rank above 5: compute on merged axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind, known, numbers, producer, rebuilt

_MOST = 5
_RESHAPES = ("reshape", "expand_dims", "shrink_dims")
_ELEMENTWISE = (
    *("add", "sub", "mul", "divide", "floor_divide", "modulo", "maximum", "minimum", "pow"),
    *("equal", "not_equal", "greater", "and", "or", "xor", "not", "where", "cast", "abs"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "relu", "sigmoid", "silu", "tanh", "exp", "log"),
    *("sqrt", "rsqrt", "sin", "cos", "erf", "round", "gelu", "broadcast_to"),
)
_REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_product")


def apply(op: Operation) -> Sequence[Value] | None:
    """Replace an op with an operand or result of rank above 5, if its sizes are static."""
    values = [*op.operands, *op.results]
    if len(op.results) != 1 or not any(_rank(value) > _MOST for value in values):
        return None
    if any(n < 0 for value in values for n in value.type.shape):
        return None
    name = kind(op)
    if name in _RESHAPES:
        return _reshaped(op)
    if name in _ELEMENTWISE:
        return _elementwise(op)
    if name == "transpose":
        return _transposed(op)
    if name in _REDUCTIONS:
        return _reduced(op)
    return _along(op) if name in ("slice", "concat") else None


def _rank(value: Value) -> int:
    return len(value.type.shape) if hasattr(value.type, "shape") else 0


def _shape(value: Value) -> list[int]:
    return [int(n) for n in value.type.shape]


def _source(value: Value) -> Value:
    """Return the value before reshapes to a high rank."""
    op = producer(value)
    while op is not None and kind(op) in _RESHAPES and _rank(value) > _MOST:
        value = op.operands[0]
        op = producer(value)
    return value


def _as(value: Value, shape: Sequence[int]) -> Value:
    return d.reshape(_source(value), list(shape))


def _typed(value: Value, shape: Sequence[int]) -> d.RankedTensorType:
    return d.RankedTensorType.get(list(shape), value.type.element_type)


def _reshaped(op: Operation) -> Sequence[Value] | None:
    result = op.results[0]
    return None if _rank(result) > _MOST else [_as(op.operands[0], _shape(result))]


def _merged(sizes: Sequence[int], groups: Sequence[Sequence[int]]) -> list[int]:
    return [math.prod(sizes[axis] for axis in group) for group in groups]


def _groups(keys: Sequence[object], sizes: Sequence[int]) -> list[list[int]]:
    """Group neighboring axes with equal keys; axes of size 1 join any group."""
    groups: list[list[int]] = []
    last: object = None
    for axis, key in enumerate(keys):
        if groups and (key == last or sizes[axis] == 1):
            groups[-1].append(axis)
        else:
            groups.append([axis])
            last = key
    return groups


def _elementwise(op: Operation) -> Sequence[Value] | None:
    result = op.results[0]
    sizes, rank = _shape(result), _rank(result)
    operands = list(op.operands)[:1] if kind(op) == "broadcast_to" else list(op.operands)
    shapes = [[1] * (rank - _rank(v)) + _shape(v) for v in operands]
    keys = [tuple(shape[axis] == sizes[axis] for shape in shapes) for axis in range(rank)]
    groups = _groups(keys, sizes)
    if len(groups) > _MOST:
        return None
    lower = [
        _as(value, _merged(shape, groups)) if _rank(value) else value
        for value, shape in zip(operands, shapes, strict=True)
    ]
    small = _merged(sizes, groups)
    if kind(op) == "broadcast_to":
        return [d.reshape(d.broadcast_to(lower[0], small), sizes)]
    return [d.reshape(rebuilt(op, lower, [_typed(result, small)])[0], sizes)]


def _transposed(op: Operation) -> Sequence[Value] | None:
    value, order = op.operands
    if known(order) is None:
        return None
    permutation, sizes = numbers(order), _shape(value)
    wanted = [axis for axis in permutation if sizes[axis] != 1]
    current = sorted(wanted)
    x = _source(value)
    for place, axis in enumerate(wanted):
        at = current.index(axis)
        if at == place:
            continue
        count = 1  # axes that move together
        while (
            place + count < len(wanted)
            and at + count < len(current)
            and wanted[place + count] == current[at + count]
        ):
            count += 1
        blocks = current[:place], current[place:at], current[at : at + count], current[at + count :]
        x = d.reshape(x, [math.prod(sizes[a] for a in block) for block in blocks])
        x = d.transpose(x, [0, 2, 1, 3])
        current = [*blocks[0], *blocks[2], *blocks[1], *blocks[3]]
    return [d.reshape(x, _shape(op.results[0]))]


def _reduced(op: Operation) -> Sequence[Value] | None:
    value, listed = op.operands
    if known(listed) is None:
        return None
    sizes = _shape(value)
    axes = {axis % len(sizes) for axis in numbers(listed)}
    groups = _groups([axis in axes for axis in range(len(sizes))], sizes)
    if len(groups) > _MOST:
        return None
    small = _merged(sizes, groups)
    reduced = [
        i for i, group in enumerate(groups) if any(sizes[a] != 1 and a in axes for a in group)
    ]
    if not reduced:
        return None
    kept = [1 if i in reduced else n for i, n in enumerate(small)]
    new = rebuilt(op, [_as(value, small), d.i32(reduced)], [_typed(op.results[0], kept)])
    return [d.reshape(new[0], _shape(op.results[0]))]


def _along(op: Operation) -> Sequence[Value] | None:
    """Slice or join along one axis, with those before and after it merged."""
    result = op.results[0]
    values = list(op.operands)[1:] if kind(op) == "concat" else list(op.operands)[:1]
    sizes = [_shape(value) for value in values]
    out = _shape(result)
    changed = [a for a in range(len(out)) if any(shape[a] != out[a] for shape in sizes)]
    if len(changed) != 1:
        return None
    (axis,) = changed
    parts = [_as(v, _around(s, axis)) for v, s in zip(values, sizes, strict=True)]
    if kind(op) == "concat":
        return [d.reshape(d.concat(1, parts), out)]
    if any(known(v) is None for v in list(op.operands)[1:4]):
        return None
    start, end, step = (numbers(v)[axis] for v in list(op.operands)[1:4])
    if step < 1:
        return None
    return [d.reshape(d.slice_axis(parts[0], 1, start, end, step), out)]


def _around(sizes: Sequence[int], axis: int) -> list[int]:
    return [math.prod(sizes[:axis]), sizes[axis], math.prod(sizes[axis + 1 :])]
