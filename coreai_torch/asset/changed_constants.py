"""Find the constants whose elements differ between two programs, with their names and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ..formatting import counted
from .reading import Function, Op, Program
from .summary import ops_of

_AS_USED = ".as_used"  # the end of the name of a weight that is stored in another layout


@dataclass(frozen=True)
class ChangedConstant:
    """A constant of two programs, and how far its elements differ."""

    name: str  # the path of a parameter or buffer; empty if the program does not record it
    module: str
    type: str
    elements: int
    differ: int  # how many elements differ
    largest: float  # the largest absolute difference
    scale: float  # the largest absolute element of the first program
    op: str  # the first op that reads it
    place: str  # the module and source line of that op

    def __str__(self) -> str:
        """Describe the constant, its difference and its first reader."""
        what = f"{self.name!r}" if self.name else "a constant"
        inside = f" of module {self.module!r}" if self.module else ""
        relative = f" (relative {self.largest / self.scale:.3g})" if self.scale else ""
        at = f" ({self.place})" if self.place else ""
        return (
            f"{what}{inside}, {self.type}: {self.differ} of {counted(self.elements, 'element')} "
            f"differ, by at most {self.largest:.3g}{relative}; first read by {self.op}{at}"
        )


@dataclass(frozen=True)
class _Read:
    """An op that runs, and the constants among its operands."""

    op: Op
    depth: int
    constants: tuple[Op | None, ...]


def changed_constants(
    first: Program,
    second: Program,
    function: str,
    name: Callable[[torch.Tensor, str], str] = lambda value, module: "",
) -> tuple[list[ChangedConstant], bool]:
    """Return the constants that differ, and whether both functions have the same ops.

    Without the same ops, only constants of one name and type are compared. `name` finds the name of
    a short constant of the first program, which is stored without one, by its value and module.
    """
    one, two = (list(_reads(p.functions[function], p)) for p in (first, second))
    same = [line(r.op) for r in one] == [line(r.op) for r in two]
    pairs = _by_place(one, two) if same else _by_name(one, two)
    found: dict[tuple[int, int], ChangedConstant | None] = {}
    for reader, before, after in pairs:
        if (id(before), id(after)) not in found:
            found[id(before), id(after)] = _change(reader, before, after, name)
    return [change for change in found.values() if change is not None], same


def executed(function: Function, program: Program, depth: int = 0) -> Iterator[tuple[int, Op]]:
    """Yield the ops of a function and, after each call, those of the called graph."""
    for read in _reads(function, program, depth, with_constants=True):
        yield read.depth, read.op


def line(op: Op) -> str:
    """Return an op with its types and attributes, without names of values and places."""
    operands = ", ".join(str(t) for t in op.operand_types)
    results = ", ".join(str(t) for t in op.types)
    shown = {k: v for k, v in op.attributes.items() if k != "callee"}
    attributes = " ".join(f"{k}={v}" for k, v in sorted(shown.items()))
    return f"{op.name.removeprefix('coreai.')}({operands}) -> {results} {attributes}".rstrip()


def _reads(
    function: Function, program: Program, depth: int = 0, *, with_constants: bool = False
) -> Iterator[_Read]:
    constants: dict[int, Op] = {}
    for op in ops_of(function.body):
        is_constant = op.name == "coreai.constant"
        if is_constant:
            constants[op.results[0]] = op
        if with_constants or not is_constant:
            yield _Read(op, depth, tuple(constants.get(number) for number in op.operands))
        if op.name == "coreai.invoke":
            callee = program.functions[op.attributes["callee"]]
            yield from _reads(callee, program, depth + 1, with_constants=with_constants)


def _by_place(one: Sequence[_Read], two: Sequence[_Read]) -> Iterator[tuple[Op, Op, Op]]:
    for a, b in zip(one, two, strict=True):
        for before, after in zip(a.constants, b.constants, strict=True):
            if before is not None and after is not None:
                yield a.op, before, after


def _by_name(one: Sequence[_Read], two: Sequence[_Read]) -> Iterator[tuple[Op, Op, Op]]:
    named = {(_name_of(c), c.types[0]): c for r in two for c in r.constants if c and _name_of(c)}
    for read in one:
        for before in read.constants:
            if before is not None and (_name_of(before), before.types[0]) in named:
                yield read.op, before, named[_name_of(before), before.types[0]]


def _name_of(constant: Op) -> str:
    return constant.blob or constant.place.weight


def _change(
    reader: Op, before: Op, after: Op, name: Callable[[torch.Tensor, str], str]
) -> ChangedConstant | None:
    a, b = before.attributes["value"], after.attributes["value"]
    if a.shape != b.shape or a.dtype != b.dtype:
        return None
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    other = ~((x == y) | (x.isnan() & y.isnan()))
    if not other.any():
        return None
    finite = other & x.isfinite() & y.isfinite()
    largest = float((x - y)[finite].abs().max()) if finite.any() else float("inf")
    known = x[x.isfinite()]
    module = reader.place.module or before.place.module
    return ChangedConstant(
        name(a, module) or _stored_name(before, after, module),
        module,
        str(before.types[0]),
        a.numel(),
        int(other.sum()),
        largest,
        float(known.abs().max()) if known.numel() else 0.0,
        reader.name.removeprefix("coreai."),
        str(reader.place),
    )


def _stored_name(before: Op, after: Op, module: str) -> str:
    """Return the name of a constant; equal weights of several modules are stored under one."""
    names = [_name_of(op).removesuffix(_AS_USED) for op in (before, after)]
    return next((n for n in names if n.rpartition(".")[0] == module), names[0])
