"""`fleet report`: one self-contained page of HTML about a run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..asset.html_page import assemble, page_file, write
from ..asset.markup import Markup, element, joined, script_data, table
from .columns import PASS, VERDICTS
from .comparing import Change, Comparison, compare
from .results import read_rows

_BINS = 24
_WIDTH, _HEIGHT = 12, 90  # of a bar, in pixels


def histogram(title: str, values: Sequence[float], unit: str) -> Markup:
    """Return a histogram of the values up to their 99th percentile; the last bar has the rest."""
    if not values:
        return _empty(title)
    ordered = sorted(values)
    top = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)))] or 1.0
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, int(_BINS * value / top))] += 1
    middle = ordered[len(ordered) // 2]
    caption = f"median {_short(middle)} {unit}, largest {_short(ordered[-1])} {unit}"
    return _figure(title, counts, "0", f"{_short(top)} {unit}", caption)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def logarithmic_histogram(title: str, values: Sequence[float]) -> Markup:
    """Return a histogram with one bar for each power of ten."""
    if not values:
        return _empty(title)
    powers = [math.floor(math.log10(value)) for value in values]
    low, high = min(powers), max(powers)
    counts = [0] * (high - low + 1)
    for power in powers:
        counts[power - low] += 1
    ordered = sorted(values)
    caption = f"median {ordered[len(ordered) // 2]:.1e}, largest {ordered[-1]:.1e}"
    return _figure(title, counts, f"1e{low}", f"1e{high + 1}", caption)


def _figure(title: str, counts: list[int], low: str, high: str, caption: str) -> Markup:
    most = max(counts)
    bars = (
        element(
            "rect",
            element("title", f"{count:,}"),
            x=place * _WIDTH,
            y=f"{_HEIGHT * (1 - count / most):.1f}",
            width=_WIDTH - 1,
            height=f"{_HEIGHT * count / most:.1f}",
        )
        for place, count in enumerate(counts)
    )
    wide = _WIDTH * len(counts)
    labels = (
        element("text", low, x=0, y=_HEIGHT + 14),
        element("text", high, x=wide, y=_HEIGHT + 14, text_anchor="end"),
    )
    size = f"0 0 {wide} {_HEIGHT + 18}"
    chart = element("svg", *bars, *labels, viewBox=size, role="img", aria_label=title)
    return element("figure", element("h3", title), chart, element("figcaption", caption))


def _empty(title: str) -> Markup:
    return element("figure", element("h3", title), element("figcaption", "not measured"))


Rows = Sequence[Mapping[str, Any]]
_SHOWN = {  # columns of the table
    "id": "task",
    "verdict": "verdict",
    "change": "change",
    "precision": "precision",
    "scheme": "scheme",
    "target": "target",
    "environment": "environment",
    "step": "step",
    "cause": "cause",
    "max_error": "error",
    "seconds": "seconds",
    "peak_mb": "memory MB",
    "file_bytes": "asset MB",
    "call_ms": "call ms",
}
# Shown if a task has a value.
_OPTIONAL = ("change", "scheme", "target", "environment", "max_error", "file_bytes", "call_ms")
_FILTERS = ("verdict", "change", "precision", "scheme", "target", "environment", "step")
_CHANGES = {  # of a task since the earlier run
    "broke": "Broke",
    "fixed": "Fixed",
    "changed": "Fails for another reason",
    "slower": "Slower",
    "faster": "Faster",
}
_LISTED = 50  # tasks of one kind of change; the table has all of them
_GROUPS = 100  # causes
_FIRST = 15  # causes that are not folded
_MESSAGE = 600  # characters


def write_report(
    folder: Path | str, output: Path | str, *, before: Path | str | None = None
) -> Path:
    """Write the page of a run; `before` is the folder of an earlier run to compare with."""
    rows = read_rows(folder)
    differences = None if before is None else compare(before, folder)
    described = Path(folder) / "run.json"
    about = json.loads(described.read_text()) if described.is_file() else {}
    title = str(about.get("plan", Path(folder).name))
    return write(output, html_page(rows, title, about, differences))


def html_page(
    rows: Rows, title: str, about: Mapping[str, Any], differences: Comparison | None = None
) -> str:
    """Return the page."""
    rows = _with_changes(rows, differences)
    body = joined(
        element("header", element("h1", f"Fleet: {title}"), _totals(rows), _about(about)),
        _contents(differences is not None),
        _differences(differences) if differences is not None else None,
        _failures(rows),
        _charts(rows),
        _table(rows),
    )
    style, script = (page_file(__package__, f"page/{name}") for name in ("style.css", "table.js"))
    return assemble(f"Fleet: {title}", body, script_data(_data(rows)), style, [script])


def _contents(compared: bool) -> Markup:
    places = {"differences": "Differences", "failures": "Failures", "charts": "Charts"}
    places["tasks"] = "All tasks"
    shown = [name for name in places if compared or name != "differences"]
    return element("nav", *(element("a", places[name], href=f"#{name}") for name in shown))


def _totals(rows: Rows) -> Markup:
    counts = Counter(row["verdict"] for row in rows)
    figures = [("tasks", f"{len(rows):,}", "")]
    for verdict in VERDICTS:
        kind = "good" if verdict == PASS else "bad"
        figures += [(verdict, f"{counts[verdict]:,}", kind)] if counts[verdict] else []
    hours = sum(row["seconds"] or 0.0 for row in rows) / 3600
    figures += [("hours of work", f"{hours:,.1f}", "")]
    pairs = (
        element("div", element("dt", name), element("dd", value, class_=kind or None))
        for name, value, kind in figures
    )
    return element("dl", *pairs, class_="figures")


def _about(about: Mapping[str, Any]) -> Markup:
    started = f"started {about['started']}" if "started" in about else ""
    named = [f"coreai-torch {about['coreai_torch']}"] if "coreai_torch" in about else []
    text = ", ".join(filter(None, [started, *named, *about.get("versions", [])[1:]]))
    return element("p", text, class_="quiet")


def _part(name: str, title: str, *children: str | None) -> Markup:
    return element("section", element("h2", title), *children, class_="part", id=name)


def _with_changes(rows: Rows, found: Comparison | None) -> Rows:
    """Return the rows with the column `change`; the name of a new task is `new`."""
    kinds: dict[str, str] = {}
    if found is not None:
        kinds = dict.fromkeys(found.new, "new")
        kinds |= {change.id: kind for kind in _CHANGES for change in getattr(found, kind)}
    return [{**row, "change": kinds.get(row["id"], "")} for row in rows]


def _differences(found: Comparison) -> Markup:
    listed = {title: getattr(found, kind) for kind, title in _CHANGES.items()}
    parts = [_changes(title, changes) for title, changes in listed.items() if changes]
    counts = f"{len(found.new):,} new tasks, {len(found.missing):,} missing tasks."
    missing = ", ".join(found.missing[:_LISTED])
    more = f" and {len(found.missing) - _LISTED:,} more" if len(found.missing) > _LISTED else ""
    return _part(
        "differences",
        "Differences to the earlier run",
        *parts,
        element("p", counts),
        element("p", f"Missing: {missing}{more}", class_="quiet") if missing else None,
    )


def _changes(title: str, changes: tuple[Change, ...]) -> Markup:
    """Return a list of changes; only what broke is open."""
    rows = [(c.id, c.before, c.after) for c in changes[:_LISTED]]
    more = len(changes) - len(rows)
    return element(
        "details",
        element("summary", element("span", f"{len(changes):,}", class_="number"), f" {title}"),
        table(("task", "before", "now"), rows),
        element("p", f"and {more:,} more: choose a change below", class_="quiet") if more else None,
        open="" if title == _CHANGES["broke"] else None,
    )


def _failures(rows: Rows) -> Markup:
    """Group the failures by verdict and cause, the largest group first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["verdict"] != PASS:
            groups.setdefault((row["verdict"], row["cause"]), []).append(row)
    if not groups:
        return _part("failures", "Failures by cause", element("p", "All tasks passed."))
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    shown = [_group(verdict, cause, found) for (verdict, cause), found in ordered[:_GROUPS]]
    left = [found for _, found in ordered[_GROUPS:]]
    return _part("failures", "Failures by cause", *shown[:_FIRST], _folded(shown[_FIRST:], left))


def _folded(groups: Sequence[Markup], left: Sequence[Rows]) -> Markup | None:
    """Return the smaller groups, closed, and the number of those that the page leaves out."""
    if not groups:
        return None
    title = f"{len(groups) + len(left):,} more causes"
    tasks = sum(len(rows) for rows in left)
    rest = f"and {len(left):,} more causes of {tasks:,} tasks: search for them below"
    return element(
        "details",
        element("summary", title),
        *groups,
        element("p", rest, class_="quiet") if left else None,
    )


def _group(verdict: str, cause: str, rows: Rows) -> Markup:
    first = rows[0]
    names = ", ".join(str(row["id"]) for row in rows[:_LISTED])
    more = f" and {len(rows) - _LISTED:,} more" if len(rows) > _LISTED else ""
    code = f", {first['error_code']}" if first["error_code"] else ""
    return element(
        "details",
        element(
            "summary",
            element("span", f"{len(rows):,}", class_="number"),
            element("span", verdict, class_="bad"),
            Markup(" "),
            element("span", f"{cause or 'no cause'}{code}"),
        ),
        element("pre", str(first["message"])[:_MESSAGE]) if first["message"] else None,
        element("p", f"{names}{more}", class_="quiet"),
    )


def _charts(rows: Rows) -> Markup:
    errors = [row["max_error"] for row in rows if _is_positive(row["max_error"])]
    seconds = [row["seconds"] for row in rows if _is_positive(row["seconds"])]
    memory = [row["peak_mb"] for row in rows if _is_positive(row["peak_mb"])]
    parts = [
        logarithmic_histogram("Largest relative error", errors),
        histogram("Seconds of a task", seconds, "s"),
        histogram("Peak memory", memory, "MB"),
    ]
    return _part("charts", "Errors, times and memory", element("div", *parts, class_="charts"))


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _table(rows: Rows) -> Markup:
    selects = []
    for name in _FILTERS:
        values = sorted({str(row[name]) for row in rows if row[name]})
        options = [element("option", f"any {name}", value="")]
        options += [element("option", value, value=value) for value in values]
        if len(values) > 1:
            selects.append(element("select", *options, data_column=name, aria_label=name))
    search = element("input", type="search", id="search", placeholder="Search tasks and causes")
    heads = (
        element("th", element("button", title, data_sort=name), scope="col")
        for name, title in _shown(rows).items()
    )
    body = joined(element("thead", element("tr", *heads)), element("tbody", id="rows"))
    return _part(
        "tasks",
        "Tasks",
        element("div", search, *selects, class_="tools"),
        element("p", id="count", class_="quiet"),
        element("div", element("table", body), class_="wide"),
        element("button", "Show more", id="more"),
    )


def _shown(rows: Rows) -> dict[str, str]:
    """Return the titles of the columns of the table."""
    return {
        name: title
        for name, title in _SHOWN.items()
        if name not in _OPTIONAL or any(row[name] not in ("", "none", None) for row in rows)
    }


def _data(rows: Rows) -> dict[str, Any]:
    """Return the columns of the table; repeated texts are stored once."""
    columns: dict[str, Any] = {}
    for name in _shown(rows):
        values = [_plain(row[name]) for row in rows]
        texts = sorted({value for value in values if isinstance(value, str)})
        if texts:
            places = {text: place for place, text in enumerate(texts)}
            columns[name] = {"texts": texts, "values": [places[value] for value in values]}
        else:
            columns[name] = {"values": values}
    messages = {n: row["message"][:_MESSAGE] for n, row in enumerate(rows) if row["message"]}
    return {"columns": columns, "count": len(rows), "messages": messages}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value
