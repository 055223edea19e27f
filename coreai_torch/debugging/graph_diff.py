"""How two graphs differ, as data and as a page of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from torch.export import ExportedProgram

from ..asset.reading import Source
from .diff_report import html_page, text_page
from .graph import Graph, Key, Operation, graph_of_coreai_program, graph_of_exported_program
from .graph_match import fingerprints, matched


@dataclass(frozen=True)
class GraphDiff:
    """Two graphs, and which operation of one is which of the other."""

    source_graph: Graph
    target_graph: Graph
    pairs: Mapping[Key, Key]

    @cached_property
    def is_isomorphic(self) -> bool:
        """Whether both compute the same from inputs to outputs, whatever the weights hold."""
        source, target = fingerprints(self.source_graph), fingerprints(self.target_graph)
        return Counter(source.values()) == Counter(target.values()) and [
            source[key] for key in self.source_graph.outputs
        ] == [target[key] for key in self.target_graph.outputs]

    @cached_property
    def only_in_source(self) -> tuple[Operation, ...]:
        """What the target lacks."""
        return tuple(o for o in self.source_graph if o.key not in self.pairs)

    @cached_property
    def only_in_target(self) -> tuple[Operation, ...]:
        """What the source lacks."""
        taken = set(self.pairs.values())
        return tuple(o for o in self.target_graph if o.key not in taken)

    @cached_property
    def rewired(self) -> tuple[tuple[Operation, Operation], ...]:
        """Pairs that do the same with the results of others."""
        return tuple(
            (a, b) for a, b in self._both() if tuple(map(self.pairs.get, a.inputs)) != b.inputs
        )

    @cached_property
    def weights(self) -> tuple[tuple[Operation, Operation], ...]:
        """Pairs of constants with other content; an export's are not looked into."""
        return tuple((a, b) for a, b in self._both() if a.value != b.value)

    def _both(self) -> list[tuple[Operation, Operation]]:
        ours, theirs = self.source_graph.by_key, self.target_graph.by_key
        return [(ours[a], theirs[b]) for a, b in self.pairs.items()]

    @property
    def summary(self) -> str:
        """The difference in one line."""
        counts = (
            f"{len(self.source_graph)} and {len(self.target_graph)} operations, "
            f"{len(self.pairs)} in both, {len(self.only_in_source)} only in the source, "
            f"{len(self.only_in_target)} only in the target, {len(self.rewired)} rewired, "
            f"{len(self.weights)} weights with other content"
        )
        return f"{'isomorphic' if self.is_isomorphic else 'different'}: {counts}"


def compute_exported_program_diff(source: ExportedProgram, target: ExportedProgram) -> GraphDiff:
    """How the graphs of two exported programs differ; names and source lines do not count."""
    return _diff(graph_of_exported_program(source), graph_of_exported_program(target))


def compute_coreai_program_diff(
    source: Source,
    target: Source,
    source_function: str = "main",
    target_function: str = "main",
) -> GraphDiff:
    """How two functions of Core AI programs differ; ids, names and locations do not count."""
    return _diff(
        graph_of_coreai_program(source, source_function),
        graph_of_coreai_program(target, target_function),
    )


def _diff(source: Graph, target: Graph) -> GraphDiff:
    return GraphDiff(source, target, matched(source, target))


def write_diff(diff: GraphDiff, output: Path | str | IO[str]) -> None:
    """Write a page to a stream or a file: HTML if its name ends so, else text."""
    if not isinstance(output, str | Path):
        output.write(text_page(diff))
        return
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    page = html_page if path.suffix in (".html", ".htm") else text_page
    path.write_text(page(diff), encoding="utf-8")
