"""What is known to go wrong with programs on devices, looked for in a finished one."""

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
    """Something to know before shipping; an error will fail, a warning may."""

    code: str
    severity: str  # "error" or "warning"
    problem: str
    way_out: str
    count: int
    place: str  # of the first


Finding = tuple[str, str]  # the op or port, and its place
Search = Callable[[Program], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """One kind of hazard, and how to find it."""

    code: str
    severity: str
    problem: str
    way_out: str
    search: Search


def hazards(source: Source) -> list[Hazard]:
    """All that was found, errors first."""
    return hazards_of(read(source, largest=0))


def hazards_of(program: Program) -> list[Hazard]:
    """The same, of a program that has been read."""
    found = []
    for rule in RULES:
        hits = list(rule.search(program))
        if hits:
            what, place = hits[0]
            where = f"{what}, {place}" if place else what
            told = (rule.code, rule.severity, rule.problem, rule.way_out)
            found.append(Hazard(*told, len(hits), where))
    return sorted(found, key=lambda h: h.severity != "error")


def _ops(program: Program) -> Iterator[Op]:
    for function in program.functions.values():
        yield from ops_of(function.body)


def _that(test: Callable[[Op], bool]) -> Search:
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
    """Reshaping to a number asks for a vector of no sizes, which nothing computes."""
    return (
        op.name == "coreai.constant" and op.types[0].shape == (0,) and op.types[0].element == "ui32"
    )


RULES = [
    Rule(
        "HAZ01",
        "error",
        "inputs or outputs of 64 bits, which devices do not have",
        "convert with coreai_torch, which narrows them to 32",
        _ports(lambda t: t.element in _WIDE, outputs=True),
    ),
    Rule(
        "HAZ02",
        "error",
        "inputs or outputs of the same name: the run time keeps one of them",
        "input_names and output_names that differ",
        _same_names,
    ),
    Rule(
        "HAZ03",
        "error",
        "results without elements, which abort the process on the GPU and the neural engine",
        "a model that does not compute them",
        _that(lambda op: any(0 in t.shape for t in op.types) and not _is_shape_of_number(op)),
    ),
    Rule(
        "HAZ04",
        "warning",
        "boolean inputs, which devices refuse",
        "an int8 or float input that the model compares with zero",
        _ports(lambda t: t.element == "i1", outputs=False),
    ),
    Rule(
        "HAZ05",
        "warning",
        "source files of the machine it was converted on",
        "coreai-torch strip",
        _that(lambda op: bool(op.place.file)),
    ),
    Rule(
        "HAZ06",
        "warning",
        "sorting or argmax of float16, whose indices the neural engine gets wrong",
        "that part of the model in float32",
        _that(lambda op: op.name in _ORDERING and any(t.element == "f16" for t in _types(op))),
    ),
    Rule(
        "HAZ07",
        "warning",
        f"tensors of more than {_MOST_AXES} axes, which the neural engine does not take",
        "axes joined by reshaping",
        _that(lambda op: any(len(t.shape) > _MOST_AXES for t in op.types)),
    ),
    Rule(
        "HAZ08",
        "warning",
        "loops, which the GPU compiler has refused",
        "a fixed number of steps, written out",
        _that(lambda op: op.name == "coreai.while"),
    ),
    Rule(
        "HAZ09",
        "warning",
        "Metal kernels, which run on the GPU alone",
        "coreai-torch verify, which runs them from their source on the CPU",
        _that(lambda op: op.name == "coreai.metal4_kernel"),
    ),
    Rule(
        "HAZ10",
        "warning",
        "sizes that the data decide: where one is zero, some ops end the process",
        "a mask in place of the elements it picks, or inputs that pick at least one",
        _that(lambda op: op.name == "coreai.non_zero"),
    ),
]
