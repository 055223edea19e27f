"""The times of a profiled program by op, by kind of op and by module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..asset.contents import short_name
from ..asset.reading import Function, Op, Program
from ..debugging.graph import enclosing_modules, operation_ids

if TYPE_CHECKING:
    from ..debugging.benchmarker import BenchmarkResult


@dataclass(frozen=True)
class Part:
    """A part of the time of a call; the parts of a list do not overlap."""

    name: str
    milliseconds: float
    ops: int
    module: str = ""  # the path to show in the graph; empty for several modules


@dataclass(frozen=True)
class Times:
    """The times of a program's ops and modules.

    The profiler adds up the time of a called graph over all its calls. Each call gets an equal
    share, because the ops of the graph record the module of only one call.
    """

    program: Program
    timing: BenchmarkResult

    @cached_property
    def by_op(self) -> dict[int, float]:
        """The milliseconds of each op by id, including called graphs and regions."""
        own = {t.operation_id: t.milliseconds for t in self.timing.operations}
        numbered = operation_ids(self.program)
        ids = {id(op): number for _, op, number in numbered}
        sites = Counter(op.attributes["callee"] for _, op, _ in numbered if _calls(op))
        total: dict[str, float] = {}

        def of_function(name: str) -> float:
            if name not in total:
                total[name] = sum(map(of_op, self.program.functions[name].body.ops))
            return total[name]

        def of_op(op: Op) -> float:
            inner = sum(of_op(o) for region in op.regions for o in region.ops)
            called = op.attributes["callee"] if _calls(op) else ""
            shared = of_function(called) / sites[called] if called else 0.0
            return own.get(ids[id(op)], 0.0) + inner + shared

        return {number: ms for _, op, number in numbered if (ms := of_op(op))}

    @cached_property
    def total(self) -> float:
        """The milliseconds of all ops in a call under the profiler."""
        return sum(timing.milliseconds for timing in self.timing.operations)

    def by_kind(self, most: int) -> list[Part]:
        """Return the time of each kind of op, slowest first; the last part is the other kinds."""
        spent: dict[str, float] = defaultdict(float)
        count: Counter[str] = Counter()
        for timing in self.timing.operations:
            name = short_name(timing.op)
            spent[name] += timing.milliseconds
            count[name] += 1
        parts = [Part(name, ms, count[name]) for name, ms in spent.items() if ms]
        return _cut(sorted(parts, key=_slowest), most, "other kinds")

    def by_module(self, most: int) -> list[Part]:
        """Return modules that do not overlap and together take the whole time, slowest first.

        The slowest module that has submodules is replaced by them, until there are `most` parts.
        The ops that belong to such a module but to none of its submodules are a part too. If the
        last step gives more than `most` parts, the last part is the sum of the fastest ones.
        """
        parts = [self._whole]
        while len(parts) < most:
            can_split = [part for part in parts if self._split(part)]
            if not can_split:
                break
            slowest = min(can_split, key=_slowest)
            parts.remove(slowest)
            parts += self._split(slowest)
        return _cut(sorted(parts, key=_slowest), most, "other modules")

    @property
    def _whole(self) -> Part:
        return Part("", self._spent.get("", 0.0), self._count.get("", 0))

    def _split(self, part: Part) -> list[Part]:
        """Return the submodules of a part and its own ops; an empty list if it has none."""
        children = self._children.get(part.module, []) if part.name == part.module else []
        if not children:
            return []
        inner = [Part(c, self._spent[c], self._count[c], c) for c in children]
        ms = self._own.get(part.module, 0.0)
        ops = part.ops - sum(child.ops for child in inner)
        if ops:
            inner.append(Part(f"{part.name or 'the model'}, own ops", ms, ops, part.module))
        return inner

    @cached_property
    def _outer_ops(self) -> list[tuple[str, float]]:
        """The module and the milliseconds of each timed op of the entry points."""
        ids = {id(op): number for _, op, number in operation_ids(self.program)}
        ops = [op for f in self.program.functions.values() for op in _outer(f)]
        timed = [(op.place.module, self.by_op.get(ids[id(op)], 0.0)) for op in ops]
        return [(module, ms) for module, ms in timed if ms]

    @cached_property
    def _own(self) -> Mapping[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for module, ms in self._outer_ops:
            spent[module] += ms
        return spent

    @cached_property
    def _spent(self) -> Mapping[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for module, ms in self._outer_ops:
            for around in enclosing_modules(module):
                spent[around] += ms
        return spent

    @cached_property
    def _count(self) -> Mapping[str, int]:
        return Counter(a for module, _ in self._outer_ops for a in enclosing_modules(module))

    @cached_property
    def _children(self) -> Mapping[str, list[str]]:
        children: dict[str, list[str]] = defaultdict(list)
        for module in self._spent:
            if module:
                children[module.rpartition(".")[0]].append(module)
        return children


def _slowest(part: Part) -> tuple[float, str]:
    return -part.milliseconds, part.name


def _cut(parts: list[Part], most: int, rest: str) -> list[Part]:
    """Return at most so many parts; the last one is the sum of the others."""
    if len(parts) <= most:
        return parts
    others = parts[most - 1 :]
    spent, ops = sum(p.milliseconds for p in others), sum(p.ops for p in others)
    return [*parts[: most - 1], Part(f"{len(others)} {rest}", spent, ops)]


def _calls(op: Op) -> bool:
    return op.name == "coreai.invoke"


def _outer(function: Function) -> Iterator[Op]:
    return iter(()) if function.is_private else iter(function.body.ops)
