"""The times of a profiled program by op and by module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..asset.reading import Function, Op, Program
from ..debugging.graph import enclosing_modules, operation_ids

if TYPE_CHECKING:
    from ..debugging.benchmarker import BenchmarkResult


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
    def by_module(self) -> list[tuple[str, float]]:
        """The milliseconds of modules with their submodules, slowest first.

        The module with an empty name is the whole model. A module whose time is that of a single
        submodule is omitted.
        """
        spent: dict[str, float] = defaultdict(float)
        ids = {id(op): number for _, op, number in operation_ids(self.program)}
        for function in self.program.functions.values():
            for op in _outer(function):
                for module in enclosing_modules(op.place.module):
                    spent[module] += self.by_op.get(ids[id(op)], 0.0)
        rows = sorted(spent.items(), key=lambda row: (-row[1], row[0]))
        within = {(module.rpartition(".")[0], ms) for module, ms in rows if module}
        return [(m, ms) for m, ms in rows if ms and (not m or (m, ms) not in within)]


def _calls(op: Op) -> bool:
    return op.name == "coreai.invoke"


def _outer(function: Function) -> Iterator[Op]:
    return iter(()) if function.is_private else iter(function.body.ops)
