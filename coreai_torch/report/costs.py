"""Parameters and multiply-adds of a program."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..asset.reading import DYNAMIC, Op, Program, Type
from ..asset.summary import once, ops_of

_COPY = re.compile(r"(?P<name>.+)\.\d+")  # `optimize()` numbers a transposed copy of a weight
_COUNTED = re.compile(r"b?f\d|complex|[su]i[1-8]\b|i1\b")  # dtypes of weights; indices are wider


@dataclass(frozen=True)
class Costs:
    """The parameters and multiply-adds of a program's ops; dynamic sizes count as 1."""

    program: Program

    @cached_property
    def parameters(self) -> Mapping[int, int]:
        """The parameters of each constant, by `id` of the op; shared ones and copies count once.

        Parameters are the elements of constants of rank 1 or higher whose dtype is that of a
        weight. A batch norm that was fused into a convolution is part of its weight and bias.
        """
        every = [op for f in self.program.functions.values() for op in ops_of(f.body)]
        constants = [op for op in once(every) if op.name == "coreai.constant"]
        stored = {op.blob: math.prod(op.types[0].shape) for op in constants if op.blob}
        return {
            id(op): math.prod(op.types[0].shape)
            for op in constants
            if _is_weight(op.types[0]) and not copied_from(op, stored)
        }

    @cached_property
    def shared(self) -> set[int]:
        """The `id`s of constants whose elements an earlier constant has already stored."""
        every = [op for f in self.program.functions.values() for op in ops_of(f.body)]
        return {id(op) for op in every} - {id(op) for op in once(every)}

    @cached_property
    def total_parameters(self) -> int:
        """The parameters of the program."""
        return sum(self.parameters.values())

    def multiply_adds(self, function: str) -> int:
        """Return the multiply-adds of a call of a function, with those of the graphs it calls."""
        return self._by_function.get(function, 0)

    @cached_property
    def _by_function(self) -> Mapping[str, int]:
        known: dict[str, int] = {}

        def of_function(name: str) -> int:
            if name not in known:
                known[name] = sum(map(of_op, ops_of(self.program.functions[name].body)))
            return known[name]

        def of_op(op: Op) -> int:
            called = op.attributes["callee"] if op.name == "coreai.invoke" else ""
            return of_function(called) if called else multiply_adds(op)

        return {name: of_function(name) for name in self.program.functions}


def copied_from(op: Op, stored: Mapping[str, int]) -> str:
    """Return the name of the constant that this one is a copy of, or an empty string."""
    found = _COPY.fullmatch(op.blob)
    if found is None or stored.get(found["name"]) != math.prod(op.types[0].shape):
        return ""
    return found["name"]


def _is_weight(type_: Type) -> bool:
    return bool(type_.shape) and bool(_COUNTED.match(type_.element))


def multiply_adds(op: Op) -> int:
    """Return the multiply-adds of a matrix product or convolution; 0 for other ops."""
    kind = op.name.removeprefix("coreai.").removeprefix("decomposable.")
    kind = kind.removeprefix("broadcasting_")
    if kind == "batch_matmul":
        return _count(op.types[0].shape) * _count(op.operand_types[0].shape[-1:])
    if kind in ("conv2d", "conv3d"):  # the weight is [outputs, inputs of a group, *window]
        return _count(op.types[0].shape) * _count(op.operand_types[1].shape[1:])
    if kind in ("conv_transpose2d", "conv_transpose3d"):  # [inputs, outputs of a group, *window]
        return _count(op.operand_types[0].shape) * _count(op.operand_types[1].shape[1:])
    return 0


def _count(shape: tuple[int, ...]) -> int:
    return math.prod(1 if size == DYNAMIC else size for size in shape)
