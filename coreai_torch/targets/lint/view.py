"""A program as rules search it: ops with the ops that produce and use their values."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import torch

from ...asset.reading import Function, Op, Program, Type
from ...asset.summary import ops_of

HALF = "f16"
FLOATS = ("f16", "bf16", "f32", "f64")
_PREFIXES = ("coreai.", "decomposable.", "broadcasting_")
# These ops change the layout or the type of a value, but not its elements.
LAYOUT = (
    *("cast", "reshape", "transpose", "expand_dims", "shrink_dims"),
    *("broadcast_in_dims", "broadcast_to", "broadcast"),
)


def kind(op: Op) -> str:
    """Return the name of an op without its prefixes: `mul` for both forms of a product."""
    return _without_prefixes(op.name)


@cache
def _without_prefixes(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def is_integer(type_: Type) -> bool:
    """Return whether the elements are integers; booleans are not."""
    return type_.element.startswith(("si", "ui"))


def elements(type_: Type) -> int:
    """Return the number of elements; dynamic sizes count as 1."""
    return math.prod(max(size, 1) for size in type_.shape)


# Name, lower and upper bound of dynamic sizes by entry point, port and axis; the upper may be None.
Ranges: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Sequence[Any]]]]


class FunctionView:
    """One function, with the producer and the users of each value."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.ops = list(ops_of(function.body))
        self._producers = {value: op for op in self.ops for value in op.results}
        self._users: dict[int, list[Op]] = defaultdict(list)
        for op in self.ops:
            for value in op.operands:
                self._users[value].append(op)

    def producer(self, value: int) -> Op | None:
        """Return the op that computes a value; None for an argument."""
        return self._producers.get(value)

    def users(self, value: int) -> list[Op]:
        """Return the ops that use a value."""
        return self._users[value]

    def origin(self, value: int) -> Op | None:
        """Return the op that computes the elements of a value, before casts and reshapes."""
        op = self.producer(value)
        while op is not None and kind(op) in LAYOUT:
            op = self.producer(op.operands[0])
        return op

    def constant(self, value: int) -> torch.Tensor | None:
        """Return the value of a small constant; None for anything else."""
        op = self.producer(value)
        return None if op is None or kind(op) != "constant" else op.attributes.get("value")

    def is_constant(self, value: int) -> bool:
        """Return whether a value comes from constants alone, through casts and reshapes."""
        op = self.origin(value)
        return op is not None and kind(op) == "constant"

    def ancestors(self, op: Op, through: Collection[str], steps: int) -> Iterator[Op]:
        """Yield the ops that `op` depends on once each, following only ops of these kinds."""
        seen: set[int] = set()  # without it, `x + x` eight times in a row takes 2**8 steps
        level = [op]
        for _ in range(steps + 1):
            values = dict.fromkeys(value for each in level for value in each.operands)
            found = [self.producer(value) for value in values if value not in seen]
            seen.update(values)
            before = [each for each in found if each is not None]
            yield from before
            level = [each for each in before if kind(each) in through]

    def is_integral(self, value: int) -> bool:
        """Return whether a value depends on integers and masks alone: indices at the start."""
        seen, waiting = {value}, [value]
        while waiting:
            op = self.producer(waiting.pop())
            if op is None or kind(op) == "constant":
                continue
            if not all(is_integer(t) or t.element == "i1" for t in op.operand_types):
                return False
            waiting += [v for v in op.operands if v not in seen]
            seen.update(op.operands)
        return True

    def where(self, *kinds: str) -> Iterator[Op]:
        """Yield the ops of these kinds."""
        return (op for op in self.ops if kind(op) in kinds)


class ProgramView:
    """All functions of a program."""

    def __init__(self, program: Program, ranges: Ranges | None = None) -> None:
        self.program = program
        self.ranges = ranges
        self.functions = [FunctionView(f) for f in program.functions.values()]

    @property
    def entries(self) -> Iterator[Function]:
        """The functions that an app can call."""
        return (f for f in self.program.functions.values() if not f.is_private)

    @property
    def outside_composites(self) -> list[FunctionView]:
        """The functions without the bodies of composites, which devices may replace by kernels."""
        return [f for f in self.functions if not f.function.composite]

    def composite(self, op: Op) -> str:
        """Return the name of the composite that an op calls; empty for every other op."""
        called = self.program.functions.get(op.attributes.get("callee", ""))
        return "" if called is None or kind(op) != "invoke" else called.composite
