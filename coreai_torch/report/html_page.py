"""Write a report on a program as one self-contained page of HTML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..asset.html_page import assemble, page_file, write
from ..asset.markup import Markup, element, joined, script_data
from ..asset.metadata import SIZES, annotation
from ..asset.reading import Program, Source, read
from ..asset.summary import file_bytes, summary_of
from ..targets import placement
from ..targets.lint import lint_program
from ..targets.placing import Placement
from . import placements, sections
from .costs import Costs
from .graph_data import SMALL, graph_data
from .hazards import rewritten
from .sections import Origin, Section, origin
from .times import Times

if TYPE_CHECKING:
    from ..debugging.benchmarker import BenchmarkResult
    from ..verification.verdict import Verdict
import tokenize

from ..asset.markup import shown

_LIBRARIES = ("vendor/dagre.min.js", "vendor/d3-zoom.min.js")
_SCRIPTS = (
    "model.js",
    "tree.js",
    "rows.js",
    "graph.js",
    "search.js",
    "weights.js",
    "flame.js",
    "scene.js",
    "layout.js",
    "dataflow.js",
    "start.js",
)


def html_page(
    source: Source,
    *,
    title: str = "",
    verdict: Verdict | None = None,
    timing: BenchmarkResult | None = None,
    code: bool = False,
    target: str = "neural_engine",
) -> str:
    """Return the page; `verdict` comes from `verify`, `timing` from `benchmark_coreai_program`.

    `code` includes the source lines of ops, from the Python files on this machine. `target` is the
    unit of the estimated placement.
    """
    program = read(source, largest=SMALL)
    named = title or (Path(source).name if isinstance(source, str | Path) else "Core AI program")
    rewrites, sizes = rewritten(source), annotation(source, SIZES)
    size, made = file_bytes(source), origin()
    placed = placement(source, target)
    return page_of(
        program,
        named,
        size,
        verdict,
        timing,
        rewrites,
        made=made,
        sizes=sizes,
        code=code,
        placed=placed,
    )


def write_page(
    path: Path | str,
    source: Source,
    *,
    title: str = "",
    verdict: Verdict | None = None,
    timing: BenchmarkResult | None = None,
    code: bool = False,
    target: str = "neural_engine",
) -> Path:
    """Write the page atomically: to a temporary file that then replaces `path`."""
    page = html_page(source, title=title, verdict=verdict, timing=timing, code=code, target=target)
    return write(path, page)


def page_of(
    program: Program,
    title: str,
    size: int | None = None,
    verdict: Verdict | None = None,
    timing: BenchmarkResult | None = None,
    rewrites: Mapping[str, int] | None = None,
    *,
    made: Origin | None = None,
    sizes: Mapping[str, Any] | None = None,
    code: bool = False,
    placed: Placement | None = None,
) -> str:
    """Return the page of a program that was already read; `size` is that of its files."""
    summary = summary_of(program, size, sizes)
    times = Times(program, timing) if timing is not None else None
    parts = [
        sections.contents(summary),
        sections.verification(verdict) if verdict is not None else None,
        sections.time(times) if times is not None else None,
        Section("flame", "Flame graph", _file("flame.html")),
        Section("dataflow", "Graph", _file("dataflow.html")),
        Section("graph", "Modules", _file("modules.html")),
        sections.weights(summary),
        placements.section_of(placed) if placed is not None else None,
        sections.lint(lint_program(program, ranges=sizes)),
        sections.rewrites(rewrites) if rewrites else None,
    ]
    shown = [part for part in parts if part is not None]
    links = (element("a", part.title, href=f"#{part.name}") for part in shown)
    head = element(
        "header",
        element("h1", title),
        sections.made(made) if made is not None else None,
        sections.figures(summary, Costs(program), verdict, times),
        element("nav", *links, aria_label="Parts"),
    )
    runs = placed.runs_by_op_id() if placed is not None else {}
    data = graph_data(program, times.by_op if times is not None else {}, runs)
    if code:
        data["code"] = source_lines(data)
    body = joined(head, *(part.body for part in shown))
    libraries = "\n".join(_file(name) for name in _LIBRARIES)
    script = "(() => {\n" + "\n".join(_file(name) for name in _SCRIPTS) + "})();\n"
    return assemble(title, body, script_data(data), _file("style.css"), [libraries, script])


def _file(name: str) -> Markup:
    return page_file(__package__, f"page/{name}")


_AROUND = 3  # lines before and after the one that an op names
_LONGEST = 160  # characters of a line


def source_lines(data: Mapping[str, Any]) -> dict[str, dict[int, list[Any]]]:
    """Return lines around each line that `graph_data` names: by file and line, the first number
    and the texts.

    Only Python files are read: an asset may name any file, and pages are passed on.
    """
    wanted: dict[str, set[int]] = {}
    for function in data["functions"]:
        for op in function["ops"]:
            if "line" in op:
                wanted.setdefault(data["strings"][op["file"]], set()).add(op["line"])
    return {
        file: {line: _around(lines, line) for line in sorted(numbers) if line <= len(lines)}
        for file, numbers in wanted.items()
        if (lines := _read(Path(file)))
    }


def _around(lines: list[str], line: int) -> list[Any]:
    first = max(line - _AROUND, 1)
    return [first, *(shown(text)[:_LONGEST] for text in lines[first - 1 : line + _AROUND])]


def _read(path: Path) -> list[str]:
    """Return the lines of a Python file; an empty list if it cannot be read."""
    if path.suffix != ".py" or not path.is_file():
        return []
    try:
        with tokenize.open(path) as file:
            return file.read().expandtabs(4).splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
