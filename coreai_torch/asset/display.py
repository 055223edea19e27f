"""Display the summary of a program: HTML for notebooks, rich for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formatting import counted, size
from .contents import Figures, op_counts, signature
from .markup import Markup, element, joined, shown, table

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 12  # kinds of ops
_STYLE = """
.coreai-summary { font: 14px/1.5 system-ui, sans-serif; max-width: 60rem; }
.coreai-summary h3 { font-size: 1em; margin: .8em 0 .2em; display: flex; gap: .8em; }
.coreai-summary table { border-collapse: collapse; margin: 0; }
.coreai-summary th, .coreai-summary td { padding: .15em 1.2em .15em 0; text-align: left; }
.coreai-summary thead { opacity: .65; }
.coreai-summary .quiet { opacity: .65; font-weight: normal; }
"""


def fragment(summary: Figures) -> str:
    """Return a self-contained HTML fragment with escaped names."""
    parts = [
        element("strong", headline(summary)),
        signature(summary),
        _counts("composites", list(summary.composites.items())),
        _counts("ops", op_counts(summary)),
        _constants(summary),
    ]
    return str(element("div", element("style", Markup(_STYLE)), *parts, class_="coreai-summary"))


def headline(summary: Figures) -> str:
    """Return the summary in one line."""
    ops = sum(function.ops for function in summary.functions)
    parts = [
        "Core AI program",
        counted(len(summary.functions), "function"),
        counted(ops, "op"),
        f"{size(summary.weight_bytes)} of constants",
    ]
    if summary.file_bytes is not None:
        parts.append(f"{size(summary.file_bytes)} on disk")
    return ", ".join(parts)


def _counts(title: str, counts: list[tuple[str, int]]) -> Markup | None:
    if not counts:
        return None
    return joined(element("h3", title), element("div", listed(counts)))


def listed(counts: list[tuple[str, int]]) -> str:
    """Return `add 12, mul 4 and 3 more kinds`."""
    text = ", ".join(f"{name} {count}" for name, count in counts[:_SHOWN])
    more = len(counts) - _SHOWN
    return text if more <= 0 else f"{text} and {counted(more, 'more kind')}"


def _constants(summary: Figures) -> Markup | None:
    if not summary.weights:
        return None
    rows = [
        (element("code", dtype), str(count), size(nbytes))
        for dtype, (count, nbytes) in summary.weights.items()
    ]
    return joined(element("h3", "constants"), table(("dtype", "count", "size"), rows))


def panel(summary: Figures) -> RenderableType:
    """Return the summary for rich; square brackets in names are not markup."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    ports = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("function", "", "name", "type"):
        ports.add_column(title, overflow="fold")
    for function in summary.functions:
        for kind in ("inputs", "outputs", "states"):
            for port in getattr(function, kind):
                name, _, type_ = shown(str(port)).rpartition(": ")
                cells = (shown(function.name), kind[:-1], name, type_)
                ports.add_row(*(Text(cell) for cell in cells))
    lines = [("composites", list(summary.composites.items())), ("ops", op_counts(summary))]
    listings = [Text(f"{title}  {shown(listed(counts))}") for title, counts in lines if counts]
    constant_text = ", ".join(f"{d} {c} ({size(b)})" for d, (c, b) in summary.weights.items())
    constants = [Text(f"constants  {constant_text}")] if constant_text else []
    return Group(Text(headline(summary), style="bold"), ports, *listings, *constants)
