"""Compile a function of a program into a list of closures that runs many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ..asset.reading import Block, Function, Op
from ..errors import RunError
from . import registry

Values: TypeAlias = "list[Any]"


@dataclass(frozen=True)
class Event:
    """An op that has just run, its function and its results."""

    function: str
    op: Op
    results: tuple[Any, ...]


Watch: TypeAlias = Callable[[Event], None]
Runner: TypeAlias = "Callable[[Values, Watch | None], None]"


@dataclass(frozen=True)
class Step:
    """An op, the closure that runs it, and the values that no later op needs."""

    op: Op
    run: Runner
    drop: tuple[int, ...]


@dataclass(frozen=True)
class Steps:
    """A compiled block: the numbers of its arguments, its steps, and its results."""

    function: str
    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    ends: tuple[int, ...]

    def __call__(self, values: Values, watch: Watch | None) -> list[Any]:
        step = None
        try:
            if watch is None:
                for step in self.steps:
                    step.run(values, None)
                    for number in step.drop:
                        values[number] = None
            else:
                for step in self.steps:
                    self._watched(step, values, watch)
        except RunError:
            raise
        except Exception as cause:
            assert step is not None
            raise RunError(_describe(step.op, self.function, cause)) from cause
        return [values[number] for number in self.ends]

    def _watched(self, step: Step, values: Values, watch: Watch) -> None:
        step.run(values, watch)
        watch(Event(self.function, step.op, tuple(values[r] for r in step.op.results)))
        for number in step.drop:
            values[number] = None


def _describe(op: Op, function: str, cause: Exception) -> str:
    given = ", ".join(str(t) for t in op.operand_types)
    where = f", {op.place}" if str(op.place) else ""
    return f"{op.name}({given}): {cause}\n  at    @{function}{where}"


def memory_of(value: Any) -> int:
    """Return the address of a tensor's storage; tensors that share memory have the same."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0


class ExecutionPlan:
    """A compiled function; `template` has its constants and the values folded from them."""

    def __init__(self, function: Function, plan_of: Plans) -> None:
        self.function, self.plan_of, self._fold = function, plan_of, plan_of.fold
        self.device, self._constant = plan_of.device, plan_of.constant
        self.template: Values = [None] * function.size
        self.fixed: set[int] = set()
        self.body = self.block(function.body)
        used = set(self.body.ends).union(*(_uses(s.op) for s in self.body.steps))
        for number in self.fixed - used:
            self.template[number] = None
        self.memory = frozenset(memory_of(value) for value in self.template)

    def __call__(self, arguments: Sequence[Any], watch: Watch | None = None) -> list[Any]:
        """Run the function on the arguments and return its results."""
        values = self.template.copy()
        for number, argument in zip(self.body.arguments, arguments, strict=True):
            values[number] = argument
        return self.body(values, watch)

    def block(self, block: Block) -> Steps:
        """Compile a block; a region shares the values of its function."""
        planned = [(op, run) for op in block.ops[:-1] if (run := self._step(op)) is not None]
        last: dict[int, int] = {}
        for index, (op, _) in enumerate(planned):
            last.update(dict.fromkeys((*_uses(op), *op.results), index))
        own = set(block.arguments).union(*(op.results for op, _ in planned))
        kept = {*block.ops[-1].operands, *self.fixed}
        drops: list[list[int]] = [[] for _ in planned]
        for number, index in last.items():
            if number in own and number not in kept:
                drops[index].append(number)
        steps = (Step(op, run, tuple(d)) for (op, run), d in zip(planned, drops, strict=True))
        return Steps(self.function.name, block.arguments, tuple(steps), block.ops[-1].operands)

    def _step(self, op: Op) -> Runner | None:
        """Return the closure that runs an op, or None if its results are constant."""
        if op.name == "coreai.constant":
            self.template[op.results[0]] = self._constant(self.function.name, op)
            self.fixed.update(op.results)
            return None
        if op.name in STRUCTURAL:
            return STRUCTURAL[op.name](op, self)
        run = _runner(op, self)
        if self._fold and op.operands and self.fixed.issuperset(op.operands):
            try:
                run(self.template, None)
            except Exception:  # raise only if the op really runs
                return run
            self.fixed.update(op.results)
            return None
        return run


# Ops with regions, calls and accesses to states: each makes its own closure.
STRUCTURAL: dict[str, Callable[[Op, ExecutionPlan], Runner]] = {}


def _uses(op: Op) -> set[int]:
    """Return the values that an op and its regions use."""
    used = set(op.operands)
    for region in op.regions:
        for inner in region.ops:
            used |= _uses(inner)
    return used


def _argument(how: str, number: int, plan: ExecutionPlan) -> tuple[bool, Any]:
    """Return whether an argument is constant, and its value or a function that reads it."""
    if number in plan.fixed and how != "tensor":
        value = plan.template[number]
        return True, value.tolist() if how == "list" else value.item()
    if how == "list":
        return False, lambda values: values[number].tolist()
    if how == "item":
        return False, lambda values: values[number].item()
    return False, lambda values: values[number]


def _hows(op: Op, parameters: Sequence[registry.Parameter]) -> list[str]:
    hows = [p.how for p in parameters if not p.variadic]
    rest = next((p.how for p in parameters if p.variadic), None)
    if rest is not None:
        hows += [rest] * (len(op.operands) - len(hows))
    return hows


def evaluate(op: Op, operands: Sequence[Any]) -> Any:
    """Return the result of one op for these operands."""
    made = registry.implementation(op)
    convert = {"tensor": lambda x: x, "list": lambda x: x.tolist(), "item": lambda x: x.item()}
    hows = _hows(op, made.parameters)
    return made.function(*[convert[how](x) for how, x in zip(hows, operands, strict=True)])


def _runner(op: Op, plan: ExecutionPlan) -> Runner:
    made = registry.implementation(op)
    hows = _hows(op, made.parameters)
    known = [_argument(how, n, plan) for how, n in zip(hows, op.operands, strict=True)]
    tensors = [n for how, n in zip(hows, op.operands, strict=True) if how == "tensor"]
    tail = [value for is_known, value in known if is_known]
    leading = all(is_known for is_known, _ in known[len(tensors) :])
    if leading and len(tensors) + len(tail) == len(known) and len(op.results) == 1:
        return _direct(made.function, tensors, tail, op.results[0])
    return _general(made.function, known, op.results)


def _direct(
    function: Callable[..., Any], tensors: Sequence[int], tail: Sequence[Any], result: int
) -> Runner:
    """Handle the common case, tensors and then constants, without a loop per call."""
    if len(tensors) == 1:
        one = tensors[0]

        def unary(values: Values, watch: Watch | None) -> None:
            values[result] = function(values[one], *tail)

        return unary
    if len(tensors) == 2:
        left, right = tensors

        def binary(values: Values, watch: Watch | None) -> None:
            values[result] = function(values[left], values[right], *tail)

        return binary

    def several(values: Values, watch: Watch | None) -> None:
        values[result] = function(*[values[n] for n in tensors], *tail)

    return several


def _general(
    function: Callable[..., Any], known: Sequence[tuple[bool, Any]], results: Sequence[int]
) -> Runner:
    def run(values: Values, watch: Watch | None) -> None:
        made = function(*[a if is_known else a(values) for is_known, a in known])
        for number, value in zip(results, made if len(results) > 1 else [made], strict=True):
            values[number] = value

    return run


Functions: TypeAlias = Mapping[str, Function]


Constant: TypeAlias = "Callable[[str, Op], torch.Tensor]"


class Plans:
    """The plans of a program's functions for one device, each compiled on first use.

    `constant` returns the value of a constant op of a function on that device.
    """

    def __init__(
        self, functions: Functions, constant: Constant, device: torch.device, *, fold: bool
    ) -> None:
        self._functions, self.constant, self.device, self.fold = functions, constant, device, fold
        self._made: dict[str, ExecutionPlan] = {}

    def __call__(self, name: str) -> ExecutionPlan:
        if name not in self._made:
            self._made[name] = ExecutionPlan(self._functions[name], self)
        return self._made[name]
