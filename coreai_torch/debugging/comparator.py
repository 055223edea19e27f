"""Find the first operations whose results differ between two programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
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
from .graph_match import Pairs, equal_pairs, matched, paired_by_node
from .inspector import (
    CoreAIInspector,
    Engine,
    Inputs,
    Inspector,
    TorchInspector,
    Values,
    names_of_inputs,
)
from .node_judge import Judge, Results, judge_of
from .search import Strategy, run_search
from .search_strategy import LevelOrderStrategy

# Takes the values of source and target.
Same: TypeAlias = Callable[[torch.Tensor, torch.Tensor], bool]


class Pair(NamedTuple):
    """An operation of the source and the matching one of the target."""

    source: Operation
    target: Operation


@dataclass(frozen=True)
class ComparisonResult:
    """The pairs that differ although all pairs that they depend on agree.

    `errors` has the largest difference of each compared pair, by the source's key; `compared`
    counts these pairs.
    """

    failed_nodes: tuple[Pair, ...]
    errors: Mapping[Key, float]
    runs: int

    @property
    def compared(self) -> int:
        """The number of pairs whose values were compared."""
        return len(self.errors)

    @property
    def ok(self) -> bool:
        """Whether no pair differs."""
        return not self.failed_nodes

    def __str__(self) -> str:
        lines = [
            f"  {pair.source}\n  {pair.target}\n    by {self.errors[pair.source.key]:.3g}"
            for pair in self.failed_nodes
        ]
        return "\n".join(["first to differ:", *lines]) if lines else f"{self.compared} pairs agree"


class Comparator:
    """Compares the values of one program's operations with those of another."""

    def __init__(self, source: Inspector, target: Inspector, pairs: Pairs) -> None:
        self._source, self._target, self.pairs = source, target, pairs

    @property
    def source_graph(self) -> Graph:
        """The operations of the source."""
        return self._source.graph

    async def values(self, keys: Sequence[Key], *, inputs: Inputs) -> tuple[Values, Values]:
        """Return the values of paired operations of the source, and of their partners."""
        want = await self._source.get_intermediates_for_ops(keys, inputs=inputs)
        paired = [self.pairs[key] for key in keys]
        return want, await self._target.get_intermediates_for_ops(paired, inputs=inputs)

    async def compare_with_tolerance(
        self,
        *,
        inputs: Inputs,
        rtol: float | None = None,
        atol: float | None = None,
        strategy: Strategy = LevelOrderStrategy.auto,
    ) -> ComparisonResult:
        """Find the first pairs that differ by more than `atol + rtol * |source|`.

        Without `rtol` and `atol`, the limit of each element comes from the error analysis of the
        exported program, as in `verify`; two Core AI programs are compared by a table of dtypes. If
        one of both is given, the other is 1e-5.
        """
        if rtol is None and atol is None:
            judge = judge_of(self._source, self._target, inputs)
            return await self._search(judge, inputs, strategy)
        relative, absolute = (1e-5 if t is None else t for t in (rtol, atol))

        def same(want: torch.Tensor, got: torch.Tensor) -> bool:
            return is_close(got, want, rtol=relative, atol=absolute)

        return await self.compare(same, inputs=inputs, strategy=strategy)

    async def compare(
        self, same: Same, *, inputs: Inputs, strategy: Strategy = LevelOrderStrategy.auto
    ) -> ComparisonResult:
        """Find the first pairs for which `same(source, target)` is false.

        Pass inputs by the names of the exported program, or in its order. For two programs of the
        same kind, pass them by name only if both use the same names.
        """

        def judge(results: Mapping[tuple[Key, Key], Results]) -> dict[Key, bool]:
            return {
                source: all(same(a, b) for a, b in values)
                for (source, _), values in results.items()
            }

        return await self._search(judge, inputs, strategy)

    async def _search(self, judge: Judge, inputs: Inputs, strategy: Strategy) -> ComparisonResult:
        errors: dict[Key, float] = {}

        async def look(batch: list[Operation]) -> Mapping[Key, bool]:
            keys = [operation.key for operation in batch]
            want, got = await self.values(keys, inputs=inputs)
            results: dict[tuple[Key, Key], Results] = {}
            for key in keys:
                other = self.pairs[key]
                values = list(_comparable(want.get(key, ()), got.get(other, ())))
                if values:
                    errors[key] = max(max_error(b, a) for a, b in values)
                    results[key, other] = values
            return judge(results)

        graph = self._source.graph.restricted(self.pairs)
        found = await run_search(graph, strategy, look)
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
    """Create a comparator of two programs, exported or Core AI.

    Operations are paired by the FX nodes that a conversion in debug mode records; without these,
    by what they compute. Pass the exported program as it was converted, that is decomposed.
    `states` are the initial states of Core AI programs; the default is the values of the exported
    program's buffers, or zeros.
    """

    def inspector(program: ExportedProgram | Source, function: str, other: Any) -> Inspector:
        if isinstance(program, ExportedProgram):
            return TorchInspector(program)
        found = CoreAIInspector(program, function, engine=engine, states=states)
        if not isinstance(other, ExportedProgram):
            return found
        return _FedLikeExport(found, other, states or {})

    source = inspector(source_program, source_entry_point, target_program)
    target = inspector(target_program, target_entry_point, source_program)
    pairs = paired_by_node(source.graph, target.graph)
    if not pairs:
        if isinstance(source_program, ExportedProgram):
            pairs = _pair_by_conversion(source_program, target.graph)
        elif isinstance(target_program, ExportedProgram):
            found = _pair_by_conversion(target_program, source.graph)
            pairs = {key: node for node, key in found.items()}
        else:
            pairs = matched(source.graph, target.graph)
    if not pairs:
        raise ValueError(
            "no operation of one program could be matched with one of the other\n"
            "  try   convert with TorchConverter(mode=TorchConverter.Mode.DEBUG), which records "
            "FX nodes, and pass the exported program as it was converted, decomposed"
        )
    return Comparator(source, target, pairs)


class _FedLikeExport:
    """A Core AI program that takes the inputs of the exported program it was converted from.

    An argument that the model writes to is an input of the export and a state of the program.
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
                f"{[s.name for s in self._plan.states]}\n"
                "  try   pass the exported program that was converted"
            )

    async def get_intermediates_for_ops(self, ids: Collection[Any], *, inputs: Inputs) -> Values:
        """Return the results of these operations."""
        given = named(inputs, self._names)
        initial = {s.node.name: self._buffers.get(s.buffer) for s in self._plan.states} | given
        pairs = zip(self._program.names_of_states, self._plan.states, strict=True)
        states = {name: initial[state.node.name] for name, state in pairs} | dict(self._states)
        feed = [given[i.node.name] for i in self._plan.inputs]
        return await self._program.get_intermediates_for_ops(ids, inputs=feed, states=states)


def _pair_by_conversion(program: ExportedProgram, target: Graph) -> Pairs:
    """Pair FX nodes with the operations of a program that records none (release mode).

    Convert the exported program in debug mode and match the result with the target, both before
    and after `optimize()`; take the match with more pairs.
    """
    converter = TorchConverter(TorchConverter.Mode.DEBUG)
    with warnings.catch_warnings():
        for known in (NarrowingWarning, GuardWarning):  # the caller has seen them
            warnings.simplefilter("ignore", known)
        try:
            again = converter.add_exported_program(program).to_coreai()
        except ConversionError:
            return {}  # the program needs a custom lowering
    best: Pairs = {}
    nodes = graph_of_exported_program(program)
    for optimized in (False, True):
        if optimized:
            again.optimize()
        graph = graph_of_coreai_program(again)
        same = equal_pairs(graph, target)
        pairs = paired_by_node(nodes, graph).items()
        best = max(best, {node: same[key] for node, key in pairs if key in same}, key=len)
    return best


def _comparable(want: Any, got: Any) -> Any:
    """Return the pairs of values, or none if a shape differs: the layout may be another."""
    if len(want) == len(got):
        same = [(a, b) for a, b in zip(want, got, strict=True) if a.shape == b.shape]
        if len(same) == len(want):
            return same
    return []
