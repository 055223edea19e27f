"""The section of a report about the units that ops will run on."""

from __future__ import annotations

from collections import Counter

from ..asset.markup import Markup, element, table
from ..formatting import counted, size
from ..targets.placing import Placement
from .sections import Section, section

_KINDS = 4  # of ops, shown for a region
_REGIONS = 40


def section_of(placed: Placement) -> Section:
    """Return the regions in the order in which they can run, and what would join them."""
    units = ", ".join(f"{counted(count, 'op')} on {unit}" for unit, count in placed.units.items())
    text = f"{counted(placed.regions, 'region')} on {placed.target}, {placed.note}: {units}."
    parts: list[Markup] = [element("p", text)]
    for function, runs in placed.runs.items():
        rows = _rows(placed, function)
        heads = ("region", "unit", "ops", "mostly", "bytes that enter")
        if len(placed.runs) > 1:
            parts.append(element("h3", function))
        parts.append(table(heads, rows[:_REGIONS], "regions"))
        if len(runs) > _REGIONS:
            left = counted(len(runs) - _REGIONS, "more region")
            parts.append(element("p", f"and {left}", class_="quiet"))
    if placed.changes:
        parts += [element("h3", "What would join regions"), _changes(placed)]
    note = "The graph above can be colored by unit; a region that fills a box outlines it."
    return section("placement", "Placement", *parts, element("p", note, class_="quiet"))


def _rows(placed: Placement, function: str) -> list[tuple[str, ...]]:
    ops = [op for op in placed.ops if op.function == function]
    enters = Counter[int]()
    for border in placed.borders:
        if border.function == function:
            enters[border.after] += border.bytes
    rows: list[tuple[str, ...]] = []
    for number, run in enumerate(placed.runs[function]):
        kinds = Counter(ops[index].name for index in run.ops).most_common(_KINDS)
        unit = element("span", run.unit, class_=f"key unit-{run.unit}")
        mostly = ", ".join(f"{name} {count}" for name, count in kinds)
        count = f"{len(run.ops):,}"
        rows.append((str(number), unit, count, mostly, size(enters[number])))
    return rows


def _changes(placed: Placement) -> Markup:
    rows = [
        (
            str(change.saved),
            change.first.name,
            change.first.place,
            "; ".join(f"{rule.code}: {rule.reason}" for rule in change.rules),
            "; ".join(rule.hint for rule in change.rules),
        )
        for change in placed.changes
    ]
    return table(("regions fewer", "op", "at", "why", "try"), rows, "changes")
