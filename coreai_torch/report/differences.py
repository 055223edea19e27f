"""List the differences between two programs: ports, composites, ops, weights."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass

from ..asset.changed_constants import changed_constants, executed, line
from ..asset.reading import Function, Program, Source, read
from ..debugging.graph import digest

_CONTEXT = 2  # equal ops shown around those that differ


@dataclass(frozen=True)
class Difference:
    """One difference between two programs."""

    function: str
    what: str  # "functions", "inputs", "outputs", "ops", "weights"
    description: str  # the difference in words; a key of `coreai-torch diff --json`


def differences(first: Source, second: Source) -> list[Difference]:
    """Return all differences; an empty list means equal computation and equal weights.

    Names of values, locations and metadata are ignored.
    """
    a, b = read(first), read(second)
    found: list[Difference] = []
    only = [f"only the {side} has {name!r}" for side, name in _unshared(a, b)]
    found += [Difference("", "functions", text) for text in only]
    for name, function in a.functions.items():
        if name in b.functions and not function.is_private:
            found += _between(name, a, b)
    return found


def _unshared(a: Program, b: Program) -> list[tuple[str, str]]:
    """Return the entrypoints that only one program has; private names have a hash."""
    first = [f.name for f in a.functions.values() if not f.is_private]
    second = [f.name for f in b.functions.values() if not f.is_private]
    return [("first", n) for n in first if n not in second] + [
        ("second", n) for n in second if n not in first
    ]


def _between(name: str, first: Program, second: Program) -> list[Difference]:
    found = []
    a, b = first.functions[name], second.functions[name]
    for what, ports in (("inputs", (a.inputs, b.inputs)), ("outputs", (a.outputs, b.outputs))):
        one, two = ([f"{p.name}: {p.type}" for p in side] for side in ports)
        if one != two:
            found.append(Difference(a.name, what, f"{one} became {two}"))
    one, two = (_lines(p.functions[name], p) for p in (first, second))
    if one != two:
        lines = difflib.unified_diff(one, two, "first", "second", lineterm="", n=_CONTEXT)
        found.append(Difference(a.name, "ops", "\n".join(lines)))
    weights = [_weights(p.functions[name], p) for p in (first, second)]
    if weights[0] != weights[1]:
        lost, new = weights[0] - weights[1], weights[1] - weights[0]
        found.append(Difference(a.name, "weights", _described(name, first, second, lost, new)))
    return found


def _described(
    name: str, first: Program, second: Program, lost: Counter[str], new: Counter[str]
) -> str:
    """Name the constants that differ, and count those without a counterpart."""
    changed, same = changed_constants(first, second, name)
    lines = [str(change) for change in changed]
    if not same or not changed:
        total = f"{lost.total()} constants of the first are not in the second"
        lines.append(f"{total}, {new.total()} are new")
    return "\n".join(lines)


def _lines(function: Function, program: Program) -> list[str]:
    return [
        "  " * depth + line(op)
        for depth, op in executed(function, program)
        if op.name != "coreai.constant"
    ]


def _weights(function: Function, program: Program) -> Counter[str]:
    constants = (op for _, op in executed(function, program) if op.name == "coreai.constant")
    return Counter(f"{op.types[0]} {digest(op.attributes['value'])}" for op in constants)
