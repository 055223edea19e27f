"""Write a graph difference as a page: text with diff marks, or HTML."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from html import escape

from .graph import Operation
from .graph_match import GraphDiff

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; }
pre { line-height: 1.4; }
.removed { background: #fdd; } .added { background: #dfd; }
.rewired { background: #ffd; } .weight { background: #def; }
"""
_MARKS = {"same": " ", "removed": "-", "added": "+", "rewired": "~", "weight": "w"}


def _rows(diff: GraphDiff) -> Iterator[tuple[str, Operation]]:
    """Yield all operations in the target's order; removed ones come where the source has them."""
    partner = {target: source for source, target in diff.pairs.items()}
    rewired = {b.key for _, b in diff.rewired}
    weights = {b.key for _, b in diff.weights}
    removed = deque(diff.only_in_source)
    order = {operation.key: at for at, operation in enumerate(diff.source_graph)}
    reached = -1  # position in the source
    for operation in diff.target_graph:
        if operation.key in partner:
            reached = max(reached, order[partner[operation.key]])
            while removed and order[removed[0].key] < reached:
                yield "removed", removed.popleft()
            kind = "weight" if operation.key in weights else "same"
            yield "rewired" if operation.key in rewired else kind, operation
        else:
            while removed and order[removed[0].key] == reached + 1:
                yield "removed", removed.popleft()
                reached += 1
            yield "added", operation
    yield from (("removed", operation) for operation in removed)


def _describe(operation: Operation) -> str:
    inputs = ", ".join(str(key) for key in operation.inputs)
    place = f"   ({operation.module})" if operation.module else ""
    return f"{operation.key} = {operation.label} ({inputs}){place}"


def text_page(diff: GraphDiff) -> str:
    """Return the summary, then a line for each operation: its mark and what it is."""
    lines = [f"{_MARKS[kind]} {_describe(operation)}" for kind, operation in _rows(diff)]
    return "\n".join([diff.summary, _legend(_MARKS), "", *lines, ""])


def _legend(marks: Mapping[str, str]) -> str:
    return ", ".join(f"{mark} {kind}" for kind, mark in marks.items() if mark != " ")


def html_page(diff: GraphDiff) -> str:
    """Return the same as a page of HTML; names from a model are escaped."""
    rows = "\n".join(
        f'<span class="{kind}">{_MARKS[kind]} {escape(_describe(operation))}</span>'
        for kind, operation in _rows(diff)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Graph difference</title><style>{_STYLE}</style></head>\n"
        f"<body><p>{escape(diff.summary)}</p><p>{escape(_legend(_MARKS))}</p>\n"
        f"<pre>{rows}</pre></body></html>\n"
    )
