"""Count the float32 ops of a finished program and their borders with half precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..asset.reading import Function, Op, Source, read
from ..asset.summary import ops_of

_HALF, _FULL = ("f16", "bf16"), "f32"
_NO_COMPUTATION = ("coreai.constant", "coreai.output", "coreai.cast")


@dataclass(frozen=True)
class Float32Ops:
    """What an entry point computes in float32, and where half precision begins and ends.

    Attributes:
        ops: how many ops have float32 results, by kind; casts are not among them.
        borders: the number of casts between float32 and half precision, without those of inputs
            and outputs.
        composites: the calls of composites that compute in float32 inside, by name: the
            statistics of norms, for example. Their inputs and results are half precision.
    """

    ops: Mapping[str, int] = field(default_factory=dict)
    borders: int = 0
    composites: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        total = sum(self.ops.values())
        text = f"{total} float32 {'op' if total == 1 else 'ops'}{_listed(self.ops)}"
        text += f", {self.borders} {'border' if self.borders == 1 else 'borders'}"
        inside = sum(self.composites.values())
        if inside:
            text += f"; {inside} calls of composites with float32 inside{_listed(self.composites)}"
        return text


def _listed(counts: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{kind} {n}' for kind, n in counts.items())})" if counts else ""


def float32_ops(program: Source, entrypoints: Sequence[str]) -> list[Float32Ops]:
    """Return the float32 ops of each entry point, those that lowerings emit included."""
    functions = read(program, largest=0).functions
    return [_counted(functions, functions[name]) for name in entrypoints]


def _counted(functions: Mapping[str, Function], entry: Function) -> Float32Ops:
    ops: Counter[str] = Counter()
    composites: Counter[str] = Counter()
    ports = _port_casts(entry)
    borders = 0
    for function, op in _reached(functions, entry):
        if op.name == "coreai.cast":
            is_port = function is entry and op.results[0] in ports
            borders += _is_border(op) and not is_port
        elif op.name not in _NO_COMPUTATION and _is_full(op.types):
            ops[op.name.rpartition(".")[2]] += 1
        called = _callee(functions, op)
        if called is not None and called.composite and _has_full(functions, called):
            composites[called.composite] += 1
    return Float32Ops(dict(ops.most_common()), borders, dict(composites.most_common()))


def _reached(
    functions: Mapping[str, Function], function: Function
) -> Iterator[tuple[Function, Op]]:
    """Yield the ops of a function and of those that it calls, without the bodies of composites."""
    for op in ops_of(function.body):
        yield function, op
        called = _callee(functions, op)
        if called is not None and not called.composite:
            yield from _reached(functions, called)


def _callee(functions: Mapping[str, Function], op: Op) -> Function | None:
    return functions[op.attributes["callee"]] if op.name == "coreai.invoke" else None


def _has_full(functions: Mapping[str, Function], composite: Function) -> bool:
    return any(
        _is_full(op.types) and op.name not in ("coreai.constant", "coreai.output")
        for _, op in _reached(functions, composite)
    )


def _is_full(types: Sequence[Any]) -> bool:
    return any(t.element == _FULL for t in types)


def _is_border(op: Op) -> bool:
    ends = {op.operand_types[0].element, op.types[0].element}
    return _FULL in ends and not ends.isdisjoint(_HALF)


def _port_casts(entry: Function) -> set[int]:
    """Return the results of casts of inputs, and of casts that only an output reads."""
    arguments, (*ops, last) = set(entry.body.arguments), entry.body.ops
    casts = [op for op in ops if op.name == "coreai.cast"]
    used = {value for op in ops_of(entry.body) if op is not last for value in op.operands}
    return {
        op.results[0] for op in casts if op.operands[0] in arguments or op.results[0] not in used
    }
