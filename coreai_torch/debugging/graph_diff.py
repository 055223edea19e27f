"""Compare the graphs of two programs, and write the difference as a page."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from torch.export import ExportedProgram

from ..asset.reading import Source
from .diff_report import html_page, text_page
from .graph import Graph, graph_of_coreai_program, graph_of_exported_program
from .graph_match import (
    GraphDiff,
    GraphDiffSummary,
    OpIdAlignment,
    WeightPolicy,
    matched,
    op_id_alignment,
)

__all__ = [
    "GraphDiff",
    "GraphDiffSummary",
    "OpIdAlignment",
    "WeightPolicy",
    "compute_coreai_program_diff",
    "compute_exported_program_diff",
    "op_id_alignment",
    "write_diff",
]


def compute_exported_program_diff(source: ExportedProgram, target: ExportedProgram) -> GraphDiff:
    """Compare the graphs of two exported programs, apart from names and source lines."""
    return _diff(graph_of_exported_program(source), graph_of_exported_program(target))


def compute_coreai_program_diff(
    source: Source,
    target: Source,
    source_function: str = "main",
    target_function: str = "main",
) -> GraphDiff:
    """Compare two functions of Core AI programs, apart from ids, names and locations."""
    return _diff(
        graph_of_coreai_program(source, source_function),
        graph_of_coreai_program(target, target_function),
    )


def _diff(source: Graph, target: Graph) -> GraphDiff:
    return GraphDiff(source, target, matched(source, target))


def write_diff(diff: GraphDiff, output: Path | str | IO[str]) -> None:
    """Write a page to a stream or a file: HTML if the suffix is `.html` or `.htm`, else text."""
    if not isinstance(output, str | Path):
        output.write(text_page(diff))
        return
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    page = html_page if path.suffix in (".html", ".htm") else text_page
    path.write_text(page(diff), encoding="utf-8")
