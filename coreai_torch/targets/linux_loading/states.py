"""Edits of the states of a language model for the Linux runtime that keep all numbers.

A state is `[layers, 1, heads, slots, width]`. The runtime of coreai-core 1.0.0b3 copies it at each
`slice_update` and `write_handle`, takes 20 ns for each element of a `slice`, and 2 ns for each
element of a `transpose`. With these edits a step
copies the rows and nothing else of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import (
    BlockArgument,
    DictAttr,
    InsertionPoint,
    RankedTensorType,
    StringAttr,
    Value,
)

from ...asset.states import name_of
from ...ir import types
from ...ir.build import Build
from ...ir.casting import raw_cast
from ...ir.graph import update_signature
from ...mlir import editing
from ...mlir.editing import Operation, kind, known_numbers, made_by

_LAYERS, _SLOTS, _RANK = 0, 3, 5
_POSITIONS = "position_ids"
_ROWS = 4  # the operand of `slice_update` after the state, starts, ends and strides


def return_rows(build: Build) -> int:
    """Return new rows as outputs instead of writing the states; return how many outputs.

    The output `keyCache[2]` contains the rows of the state `keyCache` from layer 2 on. The
    caller writes them to the last used slots.
    """
    return sum(map(_return_rows_of, editing.graphs(build.module)))


def split_states(build: Build) -> int:
    """Read the first slots of the layers of a state with two splits; return how many reads.

    `split` copies blocks of memory. If all readers transpose the rows, and the graph does not
    write the state, the slots become the last axis of the state, and nothing is transposed.
    """
    _inline_readers(build)
    groups: dict[tuple[Value, Value], list[tuple[Operation, int]]] = {}
    for op in _ops(build, "slice"):
        found = _state_read(op)
        if found is not None:
            state, end, layer = found
            groups.setdefault((state, end), []).append((op, layer))
    for (state, end), reads in groups.items():
        if not _split_swapped(state, end, reads):
            _split_reads(state, end, reads)
    _erase_unused(build)
    return sum(map(len, groups.values()))


def _return_rows_of(graph: Operation) -> int:
    outputs: list[tuple[str, Value]] = []
    for write in [op for op in editing.ops_of(graph) if kind(op) == "write_handle"]:
        rows = _written_rows(write)
        place = BlockArgument(write.operands[0]).arg_number
        name = name_of(graph.opview.arg_attrs[place])
        outputs += [(f"{name}[{layer}]", value) for layer, value in rows]
        if rows:
            editing.replace(write, [write.operands[2]])
            write.erase()
    if outputs:
        _add_outputs(graph, outputs)
        editing.erase_unused(graph)
    return len(outputs)


def _written_rows(write: Operation) -> list[tuple[int, Value]]:
    """Return layer and rows of all updates of a state; nothing if it is used otherwise, too."""
    handle, value = write.operands[0], write.operands[1]
    rows: list[tuple[int, Value]] = []
    while (update := made_by(value, "slice_update")) is not None:
        layer = _updated_layer(update)
        if layer is None or len(editing.users(value)) != 1 or not _ends_last(update):
            return []
        rows.append((layer, update.operands[_ROWS]))
        value = update.operands[0]
    read = made_by(value, "read_handle")
    is_same = read is not None and read.operands[0] == handle
    return rows if is_same and len(list(handle.uses)) == 2 else []


def _updated_layer(update: Operation) -> int | None:
    """Return the first layer of an update of some slots; None for other updates."""
    starts, steps = _entries(update.operands[1]), known_numbers(update.operands[3])
    if starts is None or steps != [1] * _RANK:
        return None
    layer, *others = starts
    is_known = [isinstance(one, int) for one in starts]
    is_some_slots = is_known == [True, True, True, False, True]
    return layer if is_some_slots and [others[0], others[1], others[3]] == [0] * 3 else None


def _ends_last(update: Operation) -> bool:
    """Return whether an update ends with the last used slot, the size of the positions.

    The caller writes the returned rows there, whatever the program does.
    """
    ends = _entries(update.operands[2])
    size = None if ends is None or isinstance(ends[_SLOTS], int) else ends[_SLOTS]
    entry = None if size is None else made_by(size, "slice")
    if entry is None or known_numbers(entry.operands[1]) != [1]:
        return False
    cast = made_by(entry.operands[0], "cast")
    shape = made_by(entry.operands[0] if cast is None else cast.operands[0], "get_shape")
    if shape is None or editing.producer(shape.operands[0]) is not None:
        return False
    positions = BlockArgument(shape.operands[0])
    graph = positions.owner.owner.operation.opview
    return name_of(graph.arg_attrs[positions.arg_number]) == _POSITIONS


def _inline_readers(build: Build) -> None:
    """Inline the graphs that are called with rows of a state."""
    graphs = {
        str(graph.attributes["sym_name"].value): graph for graph in editing.graphs(build.module)
    }
    for call in list(_ops(build, "invoke")):
        if any(_joined_read(operand) is not None for operand in call.operands):
            with InsertionPoint(call), call.location:
                editing.replace(call, editing.inlined(call, graphs[editing.called(call)]))
    _erase_unused(build)


def _joined_read(value: Value) -> Operation | None:
    """Return the read of a state whose rows a value contains, with others written to them."""
    update = made_by(value, "slice_update")
    shrunk = None if update is None else made_by(update.operands[0], "shrink_dims")
    read = None if shrunk is None else made_by(shrunk.operands[0], "slice")
    return read if read is not None and _state_read(read) is not None else None


def _split_reads(state: Value, end: Value, reads: Sequence[tuple[Any, int]]) -> None:
    shrunk = [_shrunk(op) for op, _ in reads]
    is_shrunk = all(op is not None for op in shrunk)
    with InsertionPoint(reads[0][0]), reads[0][0].location:
        layers = _split(state, end, _SLOTS, is_shrunk)
    for (op, layer), after in zip(reads, shrunk, strict=True):
        editing.replace(after if is_shrunk else op, [layers[layer]])


def _split_swapped(state: Value, end: Value, reads: Sequence[tuple[Any, int]]) -> bool:
    """Make the slots the last axis of a state; return False if a reader needs them before."""
    found = [_transposed_update(op) for op, _ in reads]
    updates = [op for op in found if op is not None]
    is_only_read = len(list(state.owner.operands[0].uses)) == 1
    users = [op for op in editing.users(state) if kind(op) != "get_shape"]
    if not is_only_read or not len(updates) == len(users) == len(reads):
        return False
    with InsertionPoint(reads[0][0]), reads[0][0].location:
        _swap_axes(state)
        layers = _split(state, end, _SLOTS + 1, is_shrunk=True)
    for (_, layer), update in zip(reads, updates, strict=True):
        with InsertionPoint(update), update.location:
            joined = _update_swapped(layers[layer], update)
            _replace_transposes(update.results[0], joined)
    return True


def _transposed_update(read: Operation) -> Operation | None:
    """Return the only op that updates rows, if all its readers transpose the result."""
    shrunk = _shrunk(read)
    if shrunk is None:
        return None
    rows = shrunk.results[0]
    updates = [op for op in editing.users(rows) if kind(op) == "slice_update"]
    if len(editing.users(rows)) != 1 or not updates or updates[0].operands[0] != rows:
        return None
    return updates[0] if _is_transposed(updates[0].results[0]) else None


def _is_transposed(value: Value) -> bool:
    """Return whether all users swap the last two axes, perhaps after a cast."""
    return all(
        known_numbers(user.operands[1]) == [0, 1, 3, 2]
        if kind(user) == "transpose"
        else kind(user) == "cast" and _is_transposed(user.results[0])
        for user in editing.users(value)
    )


def _update_swapped(layer: Value, update: Operation) -> Value:
    """Return a layer `[1, heads, width, slots]` with the rows of an update."""
    _, starts, ends, steps, rows = update.operands
    order = raw_cast(_number([0, 1, 3, 2]), torch.uint32)
    columns = gen.TransposeOp(rows, order, results=[_swapped(rows.type)]).result
    first, last = (_swapped_entries(one) for one in (starts, ends))
    type_ = _swapped(update.results[0].type)
    return gen.SliceUpdateOp(layer, first, last, steps, columns, results=[type_]).result


def _swapped_entries(vector: Value) -> Value:
    """Return a vector of sizes or positions with its last two entries swapped."""
    *first, one, other = _entries(vector) or []
    parts = [_number([x]) if isinstance(x, int) else x for x in (*first, other, one)]
    return gen.ConcatOp(_number(0), parts, results=[vector.type]).result


def _state_read(op: Operation) -> tuple[Value, Value, int] | None:
    """Return the state, the end and the layer of a read of the first slots of one layer."""
    state, starts, ends, strides = op.operands
    if made_by(state, "read_handle") is None or state.type.rank != _RANK:
        return None
    if int(state.type.shape[_SLOTS]) != types.DYNAMIC:
        return None  # a cache of a fixed length may be much longer than its used part
    start, stop, steps = known_numbers(starts), _entries(ends), known_numbers(strides)
    if start is None or stop is None or steps != [1] * len(start):
        return None
    layer, end = start[_LAYERS], stop[_SLOTS]
    sizes = [int(size) for size in state.type.shape]
    want = [layer + 1, *sizes[1:_SLOTS], end, *sizes[_SLOTS + 1 :]]
    if isinstance(end, int) or stop != want or any(start[1:]):
        return None
    return state, end, layer


def _shrunk(read: Operation) -> Operation | None:
    """Return the op that removes the layer axis of a read, if it is the only user."""
    users = editing.users(read.results[0])
    is_one = len(users) == 1 and kind(users[0]) == "shrink_dims"
    return users[0] if is_one and known_numbers(users[0].operands[1]) == [_LAYERS] else None


def _split(state: Value, end: Value, slots: int, is_shrunk: bool) -> list[Value]:
    """Return the slots before `end` of each layer, without the second axis if `is_shrunk`."""
    signed = raw_cast(gen.GetShapeOp(state).result, torch.int32)
    at, after, step = (_number([n]) for n in (slots, slots + 1, 1))
    total = gen.SliceOp(signed, at, after, step, results=[end.type]).result
    rest = gen.SubOp(total, end, results=[end.type]).result
    axis = _number(_LAYERS)
    pair = RankedTensorType.get([2], end.type.element_type)
    parts = raw_cast(gen.ConcatOp(axis, [end, rest], results=[pair]).result, torch.uint32)
    used = gen.SplitOp(state, parts, _number(slots), results=[state.type] * 2).results[0]
    layers, *others = (int(size) for size in state.type.shape)
    if is_shrunk:
        others = others[1:]
        type_ = RankedTensorType.get([layers, *others], state.type.element_type)
        used = gen.ShrinkDimsOp(used, _number([1]), results=[type_]).result
    one = RankedTensorType.get([1, *others], state.type.element_type)
    ones = raw_cast(_number([1] * layers), torch.uint32)
    return list(gen.SplitOp(used, ones, axis, results=[one] * layers).results)


def _entries(value: Value) -> list[Any] | None:
    """Return the elements of a vector, those that are not constant as values."""
    found = known_numbers(value)
    if found is not None:
        return found
    if made_by(value, "concat") is None:
        return [value] if list(value.type.shape) == [1] else None
    entries: list[Any] = []
    for part in list(value.owner.operands)[1:]:
        inner = _entries(part)
        if inner is None:
            return None
        entries += inner
    return entries


def _add_outputs(graph: Operation, outputs: Sequence[tuple[str, Value]]) -> None:
    """Let a graph return more values."""
    output = list(graph.regions[0].blocks[0].operations)[-1].operation
    names = [DictAttr.get({"coreai.name": StringAttr.get(name)}) for name, _ in outputs]
    with InsertionPoint(output), output.location:
        gen.OutputOp([*output.operands, *(value for _, value in outputs)])
    output.erase()
    graph.opview.res_attrs = [*graph.opview.res_attrs, *names]
    update_signature(graph)


def _swap_axes(state: Value) -> None:
    """Swap the last two axes of a state that a graph reads."""
    handle, type_ = state.owner.operands[0], _swapped(state.type)
    state.set_type(type_)
    handle.set_type(_coreai.HandleType.get(type_))
    update_signature(BlockArgument(handle).owner.owner.operation)


def _swapped(type_: RankedTensorType) -> RankedTensorType:
    *first, one, other = (int(size) for size in type_.shape)
    return RankedTensorType.get([*first, other, one], type_.element_type)


def _replace_transposes(value: Value, swapped: Value) -> None:
    """Let the readers of the transposed value, perhaps after a cast, read `swapped`."""
    for user in editing.users(value):
        if kind(user) == "transpose":
            editing.replace(user, [swapped])
        else:
            result = user.results[0]
            with InsertionPoint(user), user.location:
                cast = gen.CastOp(_swapped(result.type), swapped).result
            _replace_transposes(result, cast)


def _number(value: int | list[int]) -> Value:
    return Build.current().number(value, torch.int32)


def _ops(build: Build, name: str) -> Iterator[Operation]:
    for graph in editing.graphs(build.module):
        yield from (op for op in editing.ops_of(graph) if kind(op) == name)


def _erase_unused(build: Build) -> None:
    for graph in editing.graphs(build.module):
        editing.erase_unused(graph)
