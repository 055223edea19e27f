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


class Editor:
    """Edits the graphs of one module; its context must be active."""

    def __init__(self, module: Any) -> None:
        operations = (op.operation for op in module.body.operations)
        self._graphs = [op for op in operations if op.name == "coreai.graph"]
        self._constants = constants.Constants()

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

    def bytes_of(self, kinds: Collection[str], *, constant: bool = False) -> int:
        """Return the bytes of the results of ops of some kinds that other ops read.

        With `constant`, only ops on a constant count.
        """
        total = 0
        for op in self._ops(*kinds):
            if constant and made_by(op.operands[0], "constant") is None:
                continue
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
