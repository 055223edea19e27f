"""Finds the first operations in which two programs part."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.export import ExportedProgram

from ..asset.reading import Source
from ..capture.io_plan import Names, plan
from ..converter import TorchConverter
from ..errors import ConversionError, GuardWarning, NarrowingWarning
from ..numerics.compare import is_close, max_error
from .graph import Graph, Key, Operation, graph_of_coreai_program, graph_of_exported_program, named
from .graph_match import Pairs, alike, matched, paired_by_node
from .inspector import (
    CoreAIInspector,
    Engine,
    Inputs,
    Inspector,
    TorchInspector,
    Values,
    names_of_inputs,
)
from .search import Strategy, searched
from .search_strategy import LevelOrderStrategy

Same: TypeAlias = Callable[[torch.Tensor, torch.Tensor], bool]  # of the source, of the target


class Pair(NamedTuple):
    """An operation and what it became."""

    source: Operation
    target: Operation


@dataclass(frozen=True)
class ComparisonResult:
    """The pairs that differ while all pairs that they depend on agree.

    `errors` holds the largest difference of each pair looked at, by the source's key; `compared`
    counts those whose values could be held against each other.
    """

    failed_nodes: tuple[Pair, ...]
    errors: Mapping[Key, float]
    runs: int

    @property
    def compared(self) -> int:
        """How many pairs were looked at."""
        return len(self.errors)

    @property
    def ok(self) -> bool:
        """Whether nothing differed."""
        return not self.failed_nodes

    def __str__(self) -> str:
        told = [
            f"  {pair.source}\n  {pair.target}\n    by {self.errors[pair.source.key]:.3g}"
            for pair in self.failed_nodes
        ]
        return "\n".join(["first to differ:", *told]) if told else f"{self.compared} pairs agree"


class Comparator:
    """Holds the values of one program's operations against those of another."""

    def __init__(self, source: Inspector, target: Inspector, pairs: Pairs) -> None:
        self._source, self._target, self.pairs = source, target, pairs

    async def compare_with_tolerance(
        self,
        *,
        inputs: Inputs,
        rtol: float = 1e-5,
        atol: float = 1e-5,
        strategy: Strategy = LevelOrderStrategy.auto,
    ) -> ComparisonResult:
        """Find the first pairs that differ by more than `atol + rtol * |source|`."""

        def same(want: torch.Tensor, got: torch.Tensor) -> bool:
            return is_close(got, want, rtol=rtol, atol=atol)

        return await self.compare(same, inputs=inputs, strategy=strategy)

    async def compare(
        self, same: Same, *, inputs: Inputs, strategy: Strategy = LevelOrderStrategy.auto
    ) -> ComparisonResult:
        """Find the first pairs for which `same(source, target)` is false.

        Inputs come by name, as an exported program calls them, or in its order; of two programs of
        a kind, by name if both call them the same.
        """
        errors: dict[Key, float] = {}

        async def look(batch: list[Operation]) -> Mapping[Key, bool]:
            keys = [operation.key for operation in batch]
            ask = self._source.get_intermediates_for_ops
            want = await ask(keys, inputs=inputs)
            ask = self._target.get_intermediates_for_ops
            got = await ask([self.pairs[key] for key in keys], inputs=inputs)
            passed = {}
            for key in keys:
                values = list(_held(want.get(key, ()), got.get(self.pairs[key], ())))
                if values:
                    errors[key] = max(max_error(b, a) for a, b in values)
                    passed[key] = all(same(a, b) for a, b in values)
            return passed

        graph = self._source.graph.restricted(self.pairs)
        found = await searched(graph, strategy, look)
        ours, theirs = self._source.graph.by_key, self._target.graph.by_key
        failed = (Pair(ours[o.key], theirs[self.pairs[o.key]]) for o in found.failed)
        return ComparisonResult(tuple(failed), errors, found.runs)


async def create_comparator_for_programs(
    *,
    source_program: ExportedProgram | Source,
    target_program: ExportedProgram | Source,
    source_entry_point: str = "main",
    target_entry_point: str = "main",
    engine: Engine = "runtime",
    states: Mapping[str, Any] | None = None,
) -> Comparator:
    """A comparator of two programs, exported or Core AI.

    Operations are paired by the FX nodes that a conversion in debug mode records; where none are
    recorded, by what they compute. The exported program is the one that was converted,
    decomposed. `states` are what the states of Core AI programs start from, else what the
    exported program's buffers hold, else zeros.
    """

    def inspector(program: ExportedProgram | Source, function: str, beside: Any) -> Inspector:
        if isinstance(program, ExportedProgram):
            return TorchInspector(program)
        found = CoreAIInspector(program, function, engine=engine, states=states)
        return _Fed(found, beside, states or {}) if isinstance(beside, ExportedProgram) else found

    source = inspector(source_program, source_entry_point, target_program)
    target = inspector(target_program, target_entry_point, source_program)
    pairs = paired_by_node(source.graph, target.graph)
    if not pairs:
        if isinstance(source_program, ExportedProgram):
            pairs = _converted_anew(source_program, target.graph)
        elif isinstance(target_program, ExportedProgram):
            found = _converted_anew(target_program, source.graph)
            pairs = {key: node for node, key in found.items()}
        else:
            pairs = matched(source.graph, target.graph)
    if not pairs:
        raise ValueError(
            "no operation of one program is known to be one of the other\n"
            "  try   TorchConverter(mode=TorchConverter.Mode.DEBUG), which records the FX nodes, "
            "and the exported program as it was converted, decomposed"
        )
    return Comparator(source, target, pairs)


class _Fed:
    """A Core AI program that is fed with what the exported program takes that it came from.

    An argument that the model writes to is an input there and a state here.
    """

    def __init__(
        self, program: CoreAIInspector, exported: ExportedProgram, states: Mapping[str, Any]
    ) -> None:
        self.graph, self._program, self._states = program.graph, program, states
        self._names, self._plan = names_of_inputs(exported), plan(exported, Names())
        self._buffers = {**exported.constants, **exported.state_dict}
        if len(program.names_of_states) != len(self._plan.states):
            raise ValueError(
                f"the program has the states {program.names_of_states}, the exported program "
                f"{[s.name for s in self._plan.states]}\n  try   the one that it was made from"
            )

    async def get_intermediates_for_ops(self, ids: Collection[Any], *, inputs: Inputs) -> Values:
        """The results of these operations."""
        given = named(inputs, self._names)
        held = {s.node.name: self._buffers.get(s.buffer) for s in self._plan.states} | given
        pairs = zip(self._program.names_of_states, self._plan.states, strict=True)
        states = {name: held[state.node.name] for name, state in pairs} | dict(self._states)
        feed = [given[i.node.name] for i in self._plan.inputs]
        return await self._program.get_intermediates_for_ops(ids, inputs=feed, states=states)


def _converted_anew(program: ExportedProgram, target: Graph) -> Pairs:
    """From FX nodes to operations that record none, as of a program converted in release mode.

    The exported program is converted with its nodes, and the result laid beside the target, as
    converted or as optimized, whichever is more like it.
    """
    converter = TorchConverter(TorchConverter.Mode.DEBUG)
    with warnings.catch_warnings():
        for seen in (NarrowingWarning, GuardWarning):  # by the caller
            warnings.simplefilter("ignore", seen)
        try:
            again = converter.add_exported_program(program).to_coreai()
        except ConversionError:
            return {}  # a lowering of the caller's own
    best: Pairs = {}
    nodes = graph_of_exported_program(program)
    for optimized in (False, True):
        if optimized:
            again.optimize()
        graph = graph_of_coreai_program(again)
        same = alike(graph, target)
        held = paired_by_node(nodes, graph).items()
        best = max(best, {node: same[key] for node, key in held if key in same}, key=len)
    return best


def _held(want: Any, got: Any) -> Any:
    """Values that can be compared: one may have been computed in another layout."""
    if len(want) == len(got):
        same = [(a, b) for a, b in zip(want, got, strict=True) if a.shape == b.shape]
        if len(same) == len(want):
            return same
    return []
