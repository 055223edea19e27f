"""What a rule is, and the common ways to search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...asset.reading import Op, Port, Type
from .view import FunctionView, ProgramView

Severity: TypeAlias = Literal["error", "warning", "info"]
Unit: TypeAlias = Literal["cpu", "gpu", "neural_engine"]
UNITS: tuple[Unit, ...] = ("cpu", "gpu", "neural_engine")
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

Match: TypeAlias = tuple[str, str]  # the op or port, and its place
Search: TypeAlias = Callable[[ProgramView], Iterator[Match]]


@dataclass(frozen=True)
class Rule:
    """A construct that is reported to fail, to give wrong numbers or to be slow on devices.

    An `error` fails, a `warning` may fail or give wrong numbers, an `info` costs time or memory.
    None of the reports about devices was reproduced by this project; `source` names them.
    """

    code: str
    severity: Severity
    units: tuple[Unit, ...]
    problem: str
    hint: str
    source: str
    search: Search
    rewrite: str = ""  # what `convert(target=...)` emits in its place, if a rewrite exists
    since: str = ""  # the first version of the operating system with the problem
    before: str = ""  # the first version without it


def ops_where(test: Callable[[FunctionView, Op], bool]) -> Search:
    """Search for ops that pass a test."""

    def search(view: ProgramView) -> Iterator[Match]:
        for function in view.functions:
            yield from (match(op) for op in function.ops if test(function, op))

    return search


def calls_where(composite: str, test: Callable[[ProgramView, Op], bool]) -> Search:
    """Search for calls of a composite that pass a test."""

    def search(view: ProgramView) -> Iterator[Match]:
        for function in view.functions:
            for op in function.where("invoke"):
                if view.composite(op) == composite and test(view, op):
                    yield composite, str(op.place)

    return search


def ports_where(test: Callable[[Type], bool], *, outputs: bool = False) -> Search:
    """Search for inputs, and outputs if asked, that pass a test."""

    def search(view: ProgramView) -> Iterator[Match]:
        for function in view.entries:
            ports = (*function.inputs, *(function.outputs if outputs else ()))
            yield from (port_match(p, function.name) for p in ports if test(p.type))

    return search


def match(op: Op) -> Match:
    """Return an op as a match."""
    return op.name, str(op.place)


def port_match(port: Port, function: str) -> Match:
    """Return a port as a match."""
    return f"{port.name!r} of {function!r}", ""
