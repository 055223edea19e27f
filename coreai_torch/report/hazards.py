"""Search a program for constructs that are known to fail on devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..asset.reading import Op, Program, Source, Type, read
from ..asset.summary import ops_of

_WIDE = ("si64", "ui64", "f64")
_ORDERING = ("coreai.sort", "coreai.argsort", "coreai.argmax", "coreai.topk")
_MOST_AXES = 5


@dataclass(frozen=True)
class Hazard:
    """A known problem on devices: an error will fail, a warning may."""

    code: str
    severity: str  # "error" or "warning"
    problem: str
    hint: str  # what to do; a key of `coreai-torch doctor --json`
    count: int
    place: str  # of the first


Finding = tuple[str, str]  # the op or port, and its place
Search = Callable[[Program], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A kind of hazard, and the search for it."""

    code: str
    severity: str
    problem: str
    hint: str
    search: Search


def hazards(source: Source) -> list[Hazard]:
    """Return all hazards of a program, errors first."""
    return hazards_of(read(source, largest=0))


def hazards_of(program: Program) -> list[Hazard]:
    """Return all hazards of a program that was already read."""
    found = []
    for rule in RULES:
        hits = list(rule.search(program))
        if hits:
            what, place = hits[0]
            where = f"{what}, {place}" if place else what
            known = (rule.code, rule.severity, rule.problem, rule.hint)
            found.append(Hazard(*known, len(hits), where))
    return sorted(found, key=lambda h: h.severity != "error")


def _ops(program: Program) -> Iterator[Op]:
    for function in program.functions.values():
        yield from ops_of(function.body)


def _ops_where(test: Callable[[Op], bool]) -> Search:
    return lambda program: ((op.name, str(op.place)) for op in _ops(program) if test(op))


def _types(op: Op) -> tuple[Type, ...]:
    return (*op.types, *op.operand_types)


def _ports(test: Callable[[Type], bool], *, outputs: bool) -> Search:
    def rule(program: Program) -> Iterator[Finding]:
        for function in program.functions.values():
            if not function.is_private:
                ports = (*function.inputs, *(function.outputs if outputs else ()))
                yield from ((f"{p.name!r} of {function.name!r}", "") for p in ports if test(p.type))

    return rule


def _same_names(program: Program) -> Iterator[Finding]:
    for function in program.functions.values():
        if not function.is_private:
            for ports in (function.inputs, function.outputs):
                counted = Counter(p.name for p in ports)
                yield from (
                    (f"{n!r} of {function.name!r}", "") for n, c in counted.items() if c > 1
                )


def _is_shape_of_number(op: Op) -> bool:
    """Return whether a constant is the zero-size shape operand of a reshape to rank 0."""
    return (
        op.name == "coreai.constant" and op.types[0].shape == (0,) and op.types[0].element == "ui32"
    )


RULES = [
    Rule(
        "HAZ01",
        "error",
        "64-bit inputs or outputs, which devices do not support",
        "convert with coreai_torch, which narrows them to 32 bits",
        _ports(lambda t: t.element in _WIDE, outputs=True),
    ),
    Rule(
        "HAZ02",
        "error",
        "inputs or outputs with the same name: the runtime keeps only one",
        "pass different input_names and output_names",
        _same_names,
    ),
    Rule(
        "HAZ03",
        "error",
        "zero-size results, which crash the process on the GPU and the neural engine",
        "change the model so that it does not compute them",
        _ops_where(lambda op: any(0 in t.shape for t in op.types) and not _is_shape_of_number(op)),
    ),
    Rule(
        "HAZ04",
        "warning",
        "boolean inputs, which devices reject",
        "use an int8 or float input, and compare it with zero in the model",
        _ports(lambda t: t.element == "i1", outputs=False),
    ),
    Rule(
        "HAZ05",
        "warning",
        "paths of source files on the machine that converted it",
        "run coreai-torch strip",
        _ops_where(lambda op: bool(op.place.file)),
    ),
    Rule(
        "HAZ06",
        "warning",
        "sort or argmax of float16, for which the neural engine returns wrong indices",
        "compute that part of the model in float32",
        _ops_where(lambda op: op.name in _ORDERING and any(t.element == "f16" for t in _types(op))),
    ),
    Rule(
        "HAZ07",
        "warning",
        f"tensors of rank above {_MOST_AXES}, which the neural engine does not support",
        "merge axes with a reshape",
        _ops_where(lambda op: any(len(t.shape) > _MOST_AXES for t in op.types)),
    ),
    Rule(
        "HAZ08",
        "warning",
        "loops, which the GPU compiler has rejected",
        "unroll a fixed number of steps",
        _ops_where(lambda op: op.name == "coreai.while"),
    ),
    Rule(
        "HAZ09",
        "warning",
        "Metal kernels, which run only on the GPU",
        "run coreai-torch verify, which runs them from their source on the CPU",
        _ops_where(lambda op: op.name == "coreai.metal4_kernel"),
    ),
    Rule(
        "HAZ10",
        "warning",
        "sizes that depend on values: if one is zero, some ops crash the process",
        "use a mask instead of the selected elements, or inputs that select at least one",
        _ops_where(lambda op: op.name == "coreai.non_zero"),
    ),
]
