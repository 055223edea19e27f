"""Estimate which unit runs each op of a program, from rules about devices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...asset.reading import DYNAMIC, Op, Program, Source, Type, bytes_of, read, read_module
from ...asset.summary import ops_of
from ...errors import ConversionError
from ..lint.view import FunctionView, ProgramView, kind
from .regions import Region, divide
from .rules import RULES, PlacementRule

TARGETS = ("neural_engine", "gpu")
ESTIMATE = "an estimate from public reports, not a measurement on a device"
_ORDER = {"neural_engine": ("neural_engine", "gpu", "cpu"), "gpu": ("gpu", "cpu")}
_READ = 1 << 16  # larger constants are weights; the rules look at masks, strides and scales
_SHOWN = 10


@dataclass(frozen=True)
class PlacedOp:
    """An op with its estimated unit, and the rules that keep it off the target."""

    function: str
    name: str  # of the op, or of the composite that it calls
    unit: str
    place: str
    rules: tuple[PlacementRule, ...] = ()
    notes: tuple[PlacementRule, ...] = ()  # rules about wrong numbers or time on the target
    op_id: int | None = None  # as the program records it, and compute plans name it

    def to_dict(self) -> dict[str, Any]:
        """Return the op as plain data."""
        data: dict[str, Any] = {"function": self.function, "op": self.name, "unit": self.unit}
        data |= {"at": self.place, "op_id": self.op_id}
        found = {"rules": [*map(_plain, self.rules)], "notes": [*map(_plain, self.notes)]}
        return data | {name: value for name, value in found.items() if value}


@dataclass(frozen=True)
class Border:
    """The tensors that go from one region to another; dynamic sizes count as 1."""

    function: str
    before: int
    after: int
    bytes: int


@dataclass(frozen=True)
class Change:
    """Connected ops off the target, and the regions of a function if they ran there."""

    function: str
    saved: int
    ops: int
    first: PlacedOp
    rules: tuple[PlacementRule, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain data."""
        rules = [_plain(rule) for rule in self.rules]
        return {
            "function": self.function,
            "saved_regions": self.saved,
            "ops": self.ops,
            "at": self.first.place,
            "first": self.first.name,
            "rules": rules,
        }


@dataclass(frozen=True)
class Placement:
    """An estimate of the unit of each op; `regions` counts the runs of ops on one unit."""

    target: str
    ops: tuple[PlacedOp, ...]
    runs: Mapping[str, Sequence[Region]]  # by function; ops are numbered within it
    borders: tuple[Border, ...]
    changes: tuple[Change, ...]
    note: str = field(default=ESTIMATE)

    @property
    def regions(self) -> int:
        """The number of regions of the function that has the most."""
        return max((len(runs) for runs in self.runs.values()), default=0)

    def runs_by_op_id(self) -> dict[int, tuple[str, int]]:
        """Return the unit of each op with a recorded id, and the number of its region."""
        found: dict[int, tuple[str, int]] = {}
        for function, runs in self.runs.items():
            ops = [op for op in self.ops if op.function == function]
            for number, run in enumerate(runs):
                ids = (ops[index].op_id for index in run.ops)
                found |= {id_: (run.unit, number) for id_ in ids if id_ is not None}
        return found

    @property
    def units(self) -> dict[str, int]:
        """The number of ops by unit."""
        return dict(Counter(op.unit for op in self.ops))

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain data."""
        return {
            "target": self.target,
            "note": self.note,
            "regions": {name: len(runs) for name, runs in self.runs.items()},
            "units": self.units,
            "borders": [vars(border) for border in self.borders],
            "changes": [change.to_dict() for change in self.changes],
            "ops": [op.to_dict() for op in self.ops],
        }


def placement(source: Source, target: str = "neural_engine") -> Placement:
    """Estimate which unit runs each op if an app asks for `target`.

    Composites count as one op, because devices may replace them by kernels. Ops on constants alone
    count for nothing. This is an estimate: each rule names its source and how sure it is.

    Args:
        source: a program, an asset, or the path of one.
        target: "neural_engine" or "gpu".
    """
    if target not in TARGETS:
        raise ConversionError(
            f"target is {target!r}\n  try   pass {' or '.join(map(repr, TARGETS))}"
        )
    return placement_of(read(source, largest=_READ), target)


def placement_of(program: Program, target: str) -> Placement:
    """Estimate the placement of a program that was already read."""
    view = ProgramView(program)
    ops: list[PlacedOp] = []
    runs: dict[str, Sequence[Region]] = {}
    borders: list[Border] = []
    changes: list[Change] = []
    for function in view.functions:
        if function.function.is_private:
            continue
        graph = _Graph(view, function, target)
        ops += graph.placed
        runs[function.function.name] = graph.regions
        borders += graph.borders()
        changes += graph.changes()
    changes.sort(key=lambda change: -change.saved)
    return Placement(target, tuple(ops), runs, tuple(borders), tuple(changes[:_SHOWN]))


@dataclass(frozen=True)
class RegionCounts:
    """The estimated regions of a program as it was lowered, and after the rewrites of a target."""

    target: str
    before: int
    after: int

    def __str__(self) -> str:
        """Return one line."""
        count = f"{self.after} region{'' if self.after == 1 else 's'}"
        return f"{self.target}: {count}, {self.before} without rewrites; {ESTIMATE}"


def count_regions(module: Any, target: str) -> int:
    """Return the estimated regions of a raw module."""
    return placement_of(read_module(module, largest=_READ), target).regions


class _Graph:
    """The computing ops of one function, numbered in order."""

    def __init__(self, program: ProgramView, view: FunctionView, target: str) -> None:
        self.name, self.target = view.function.name, target
        self.ops = list(_computing(view))
        self.placed = [_placed(program, view, op, target) for op in self.ops]
        producers = {value: n for n, op in enumerate(self.ops) for value in op.results}
        self.values: dict[int, tuple[int, Type]] = {}  # number of the producer, and the type
        self.users: list[list[int]] = [[] for _ in self.ops]
        self.readers: dict[int, list[int]] = defaultdict(list)
        for number, op in enumerate(self.ops):
            for value, type_ in _reads(op):
                if value in producers:
                    self.values[value] = producers[value], type_
                    self.users[producers[value]].append(number)
                    self.readers[value].append(number)
        self.regions = divide([op.unit for op in self.placed], self.users)

    def borders(self) -> Iterator[Border]:
        """Yield the tensors that leave a region, with those of the same two regions added."""
        region = {op: n for n, run in enumerate(self.regions) for op in run.ops}
        crossing: Counter[tuple[int, int]] = Counter()
        for value, (producer, type_) in self.values.items():
            for after in {region[reader] for reader in self.readers[value]} - {region[producer]}:
                crossing[region[producer], after] += _bytes(type_)
        for (before, after), count in sorted(crossing.items()):
            yield Border(self.name, before, after, count)

    def changes(self) -> Iterator[Change]:
        """Yield groups of connected ops whose move to the target saves regions."""
        units = [op.unit for op in self.placed]
        for group in self._off_target(units):
            moved = [self.target if n in group else unit for n, unit in enumerate(units)]
            saved = len(self.regions) - len(divide(moved, self.users))
            rules = dict.fromkeys(rule for n in sorted(group) for rule in self.placed[n].rules)
            if saved > 0:
                first = self.placed[min(group)]
                yield Change(self.name, saved, len(group), first, tuple(rules))

    def _off_target(self, units: Sequence[str]) -> Iterator[set[int]]:
        """Yield the sets of connected ops that do not run on the target."""
        near: dict[int, set[int]] = defaultdict(set)
        for op, users in enumerate(self.users):
            for user in users:
                near[op].add(user)
                near[user].add(op)
        left = {n for n, unit in enumerate(units) if unit != self.target}
        while left:
            group, waiting = set(), [left.pop()]
            while waiting:
                op = waiting.pop()
                group.add(op)
                found = near[op] & left
                left -= found
                waiting += found
            yield group


def _computing(view: FunctionView) -> Iterator[Op]:
    """Yield the ops that compute outputs from inputs; those on constants run once, when loaded."""
    constants: set[int] = set()
    for op in _used(view.function.body.ops):
        if kind(op) == "output":
            continue
        if not op.regions and kind(op) != "read_handle" and constants.issuperset(op.operands):
            constants.update(op.results)
            continue
        yield op


def _used(ops: Sequence[Op]) -> list[Op]:
    """Return the ops that an output or an effect depends on."""
    needed: set[int] = set()
    found = []
    for op in reversed(ops):
        if not op.results or needed.intersection(op.results):
            needed.update(value for value, _ in _reads(op))
            found.append(op)
    return found[::-1]


def _reads(op: Op) -> Iterator[tuple[int, Type]]:
    """Yield the values that an op and the ops inside it read."""
    seen: set[int] = set()
    for each in (op, *(inner for region in op.regions for inner in ops_of(region))):
        for value, type_ in zip(each.operands, each.operand_types, strict=True):
            if value not in seen:
                seen.add(value)
                yield value, type_


def _placed(program: ProgramView, view: FunctionView, op: Op, target: str) -> PlacedOp:
    hits = [rule for rule in RULES if rule.test(program, view, op)]
    leaves = [rule for rule in hits if rule.effect == "leaves"]
    allowed = [u for u in _ORDER[target] if not any(u in rule.units for rule in leaves)]
    unit = allowed[0] if allowed else "cpu"
    about = [rule for rule in hits if target in rule.units]
    rules = tuple(rule for rule in about if rule.effect == "leaves")
    notes = tuple(rule for rule in about if rule.effect != "leaves")
    name = program.composite(op) or kind(op)
    return PlacedOp(view.function.name, name, unit, str(op.place), rules, notes, op.place.op_id)


def _bytes(type_: Type) -> int:
    if not type_.element:
        return 0
    sizes = tuple(1 if size == DYNAMIC else size for size in type_.shape)
    return bytes_of(Type(type_.kind, sizes, type_.element))


def _plain(rule: PlacementRule) -> dict[str, str]:
    names = ("code", "effect", "reason", "hint", "source", "confidence")
    return {name: getattr(rule, name) for name in names}
