"""Edits of a program for the Linux runtime that keep all numbers: fewer and faster ops.

The form that is stored in an asset is the one that devices compile well. The runtime of
coreai-core 1.0.0b3 on Linux executes each op as it is stored, so another form may be faster there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import InsertionPoint, RankedTensorType, Value

from ..ir import constants, editing, types
from ..ir.editing import kind, made_by
from . import reading

Evaluate: TypeAlias = "Callable[[reading.Op, Sequence[Any]], Any]"
_LAYERS, _SLOTS = 0, 3  # axes of a state [layers, 1, heads, slots, width]


class Editor:
    """Edits the graphs of one module; its context must be active."""

    def __init__(self, module: Any) -> None:
        operations = (op.operation for op in module.body.operations)
        self._graphs = [op for op in operations if op.name == "coreai.graph"]
        self._constants = constants.Constants()

    def split_states(self) -> int:
        """Read the first slots of the layers of a state with two splits; return how many reads.

        `slice` takes 20 ns for each element of rank 5; `split` copies blocks of memory.
        """
        groups: dict[tuple[Value, Value], list[tuple[Any, int]]] = {}
        for op in self._ops("slice"):
            found = self._state_read(op)
            if found is not None:
                state, end, layer = found
                groups.setdefault((state, end), []).append((op, layer))
        for (state, end), reads in groups.items():
            shrunk = [self._shrunk(op) for op, _ in reads]
            is_shrunk = all(op is not None for op in shrunk)
            with InsertionPoint(reads[0][0]), reads[0][0].location:
                layers = self._split(state, end, is_shrunk)
            for (op, layer), after in zip(reads, shrunk, strict=True):
                editing.replace(after if is_shrunk else op, [layers[layer]])
        self._erase_unused()
        return sum(map(len, groups.values()))

    def join_reshapes(self) -> int:
        """Join reshapes that end with a leading axis of size one; return how many."""
        joined = 0
        for op in self._ops("expand_dims"):
            inner = made_by(op.operands[0], "reshape")
            if inner is None or self._numbers(op.operands[1]) != [0]:
                continue
            source, shape = inner.operands[0], self._numbers(inner.operands[1])
            # The compiler moves reshapes that add leading ones; this source has one already.
            if shape is None or source.type.rank < 2 or int(source.type.shape[0]) != 1:
                continue
            with InsertionPoint(op), op.location:
                sizes = self._vector([1, *shape])
                new = gen.ReshapeOp(source, sizes, results=[op.results[0].type]).result
            editing.replace(op, [new])
            joined += 1
        self._erase_unused()
        return joined

    def fold(self, kinds: Collection[str], then: Collection[str], evaluate: Evaluate) -> int:
        """Replace ops of some kinds on constants by their values; return how many constants result.

        The ops of the kinds `then` that read such a value are replaced as well.
        """
        made = 0
        for op in list(self._ops(*kinds)):
            users = editing.users(op.results[0])
            if all(kind(user) in kinds for user in users):
                continue  # a part of the value that the user has
            value = self._evaluated(op, kinds, evaluate)
            if value is None:
                continue
            kept = []
            for user in users:
                rest = [self._known(one) for one in list(user.operands)[1:]]
                if kind(user) in then and not any(one is None for one in rest):
                    self._store(user, evaluate(reading.read_op(user), [value, *rest]))
                    made += 1
                else:
                    kept.append(user)
            if kept:
                self._store(op, value)
                made += 1
        self._erase_unused()
        return made

    def bytes_of(self, kinds: Collection[str]) -> int:
        """Return the bytes of the results of ops of some kinds that other ops read."""
        total = 0
        for op in self._ops(*kinds):
            if not all(kind(user) in kinds for user in editing.users(op.results[0])):
                total += reading.bytes_of(reading.read_op(op).types[0])
        return total

    def _evaluated(self, op: Any, kinds: Collection[str], evaluate: Evaluate) -> Any:
        """Return the value of an op on constants; None if an operand is not constant."""
        operands = []
        for operand in op.operands:
            inner = made_by(operand, *kinds)
            operands.append(
                self._known(operand) if inner is None else self._evaluated(inner, kinds, evaluate)
            )
        if any(one is None for one in operands):
            return None
        return evaluate(reading.read_op(op), operands)

    def _store(self, op: Any, value: torch.Tensor) -> None:
        """Replace an op by a constant, and let nothing use the op."""
        type_ = op.results[0].type
        with InsertionPoint(op), op.location:
            attribute = self._constants.attribute(value.contiguous(), "expanded")
            new = constants.emit(attribute)
        if new.type != type_:
            raise ValueError(f"the constant is {new.type}, but {op.name} returns {type_}")
        editing.replace(op, [new])

    def _state_read(self, op: Any) -> tuple[Value, Value, int] | None:
        """Return the state, the end and the layer of a read of the first slots of one layer."""
        state, starts, ends, strides = op.operands
        if made_by(state, "read_handle") is None or state.type.rank != _SLOTS + 2:
            return None
        if int(state.type.shape[_SLOTS]) != types.DYNAMIC:
            return None  # a cache of a fixed length may be much longer than its used part
        start, stop, steps = self._numbers(starts), self._entries(ends), self._numbers(strides)
        if start is None or stop is None or steps != [1] * len(start):
            return None
        layer, end = start[_LAYERS], stop[_SLOTS]
        sizes = [int(size) for size in state.type.shape]
        want = [layer + 1, *sizes[1:_SLOTS], end, *sizes[_SLOTS + 1 :]]
        if isinstance(end, int) or stop != want or any(start[1:]):
            return None
        return state, end, layer

    def _shrunk(self, read: Any) -> Any:
        """Return the op that removes the layer axis of a read, if it is the only user."""
        users = editing.users(read.results[0])
        is_one = len(users) == 1 and kind(users[0]) == "shrink_dims"
        return users[0] if is_one and self._numbers(users[0].operands[1]) == [_LAYERS] else None

    def _split(self, state: Value, end: Value, is_shrunk: bool) -> list[Value]:
        """Return the slots before `end` of each layer, without the second axis if `is_shrunk`."""
        signed = self._cast(gen.GetShapeOp(state).result, torch.int32)
        at, after, step = (self._vector([n]) for n in (_SLOTS, _SLOTS + 1, 1))
        slots = gen.SliceOp(signed, at, after, step, results=[end.type]).result
        rest = gen.SubOp(slots, end, results=[end.type]).result
        axis = self._scalar(_LAYERS)
        pair = RankedTensorType.get([2], end.type.element_type)
        parts = self._cast(gen.ConcatOp(axis, [end, rest], results=[pair]).result, torch.uint32)
        used = gen.SplitOp(state, parts, self._scalar(_SLOTS), results=[state.type] * 2).results[0]
        layers, *others = (int(size) for size in state.type.shape)
        if is_shrunk:
            others = others[1:]
            type_ = RankedTensorType.get([layers, *others], state.type.element_type)
            used = gen.ShrinkDimsOp(used, self._vector([1]), results=[type_]).result
        one = RankedTensorType.get([1, *others], state.type.element_type)
        ones = self._cast(self._vector([1] * layers), torch.uint32)
        return list(gen.SplitOp(used, ones, axis, results=[one] * layers).results)

    def _entries(self, value: Value) -> list[Any] | None:
        """Return the elements of a vector, those that are not constant as values."""
        found = self._numbers(value)
        if found is not None:
            return found
        if made_by(value, "concat") is None:
            return [value] if list(value.type.shape) == [1] else None
        entries: list[Any] = []
        for part in list(value.owner.operands)[1:]:
            inner = self._entries(part)
            if inner is None:
                return None
            entries += inner
        return entries

    def _known(self, value: Value) -> torch.Tensor | None:
        """Return the tensor of a constant; None for other values."""
        op = made_by(value, "constant")
        return None if op is None else reading.read_op(op).attributes["value"]

    def _numbers(self, value: Value) -> list[int] | None:
        found = self._known(value) if value.type.rank <= 1 else None
        return None if found is None else [int(number) for number in found.flatten().tolist()]

    def _vector(self, numbers: Sequence[int]) -> Value:
        given = torch.tensor(numbers, dtype=torch.int32)
        return constants.emit(self._constants.attribute(given, "numbers"))

    def _scalar(self, number: int) -> Value:
        given = torch.tensor(number, dtype=torch.int32)
        return constants.emit(self._constants.attribute(given, "number"))

    def _cast(self, value: Value, dtype: torch.dtype) -> Value:
        type_ = RankedTensorType.get(value.type.shape, types.element(dtype))
        return gen.CastOp(type_, value).result

    def _ops(self, *names: str) -> Iterator[Any]:
        for graph in self._graphs:
            yield from (op for op in editing.ops_of(graph) if kind(op) in names)

    def _erase_unused(self) -> None:
        for graph in self._graphs:
            editing.erase_unused(graph)
