"""Count the ops of a program as devices see them: a composite is one op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coreai_torch.asset.reading import Function, Op, Program
from coreai_torch.asset.summary import ops_of
from coreai_torch.targets.lint.view import kind

_NOT_COUNTED = ("coreai.constant", "coreai.output")


@dataclass(frozen=True)
class Histogram:
    """Ops by kind; `[name]` is a call of a composite, and `inner` has what is inside of those."""

    ops: Mapping[str, int] = field(default_factory=dict)
    inner: Mapping[str, int] = field(default_factory=dict)


def histogram(program: Program) -> Histogram:
    """Count the ops of all functions; those of composites apart."""
    composites = {name for name, function in program.functions.items() if function.composite}
    functions = program.functions.items()
    return Histogram(
        _counts((f for name, f in functions if name not in composites), program),
        _counts((f for name, f in functions if name in composites), program),
    )


def counted(function: Function) -> Iterable[Op]:
    """Return the ops of a function but constants and the terminator."""
    return (op for op in ops_of(function.body) if op.name not in _NOT_COUNTED)


def _counts(functions: Iterable[Function], program: Program) -> dict[str, int]:
    names = Counter(_name(op, program) for function in functions for op in counted(function))
    return dict(sorted(names.items()))


def _name(op: Op, program: Program) -> str:
    if op.name != "coreai.invoke":
        return kind(op)
    composite = program.functions[op.attributes["callee"]].composite
    return f"[{composite}]" if composite else "invoke"
