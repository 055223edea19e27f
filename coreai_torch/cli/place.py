"""`coreai-torch place`: estimate which unit of a device runs each op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Inputs, Json, answer, counted
from .lint import program_of

if TYPE_CHECKING:
    from ..targets.placing import Placement
    from ..targets.placing.confusion import Said

HELP = """Estimate which compute unit runs each op, and where the work changes units.

\b
  coreai-torch place net.aimodel --target neural_engine
  coreai-torch place models.py:net -i "x=f16[1,3,224,224]" --max-regions 1
  coreai-torch place net.aimodel --target gpu --json
  coreai-torch place net.aimodel --against plan.json
  coreai-torch place --against kit.json
  coreai-torch place net.aimodel --html net.html

A region is a run of ops on one unit; each border between regions costs time. The rules come from
public reports, which the output names; this project measured none of them on a device. With
--max-regions the exit code is 1 if there are more. --against compares the estimate with the units
that a device chose: the JSON of ComputePlan.to_dict; without a model, it shows what
coreai-torch device-check found.
"""


class Unit(StrEnum):
    """A compute unit that an app asks for."""

    NEURAL_ENGINE = "neural_engine"
    GPU = "gpu"


def place(
    model: Annotated[
        str,
        typer.Argument(
            help="An .aimodel, an exported program (.pt2), or file.py:factory.", show_default=False
        ),
    ] = "",
    inputs: Inputs = None,
    target: Annotated[Unit, typer.Option(help="The unit to run on.")] = Unit.NEURAL_ENGINE,
    max_regions: Annotated[
        int | None, typer.Option(help="Exit with 1 if a function has more regions.", min=0)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="A compute plan of the same asset, or a kit, as JSON.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write a report, with the drawn graph, to this file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the placement."""
    from ..targets import placement

    if not model:
        _show_kit(against, as_json=as_json)
        return
    program = program_of(model, inputs or ())
    found = placement(program, str(target))
    ok = max_regions is None or found.regions <= max_regions
    data, lines = found.to_dict(), list(_describe(model, found))
    if against is not None:
        rows = _against(found, against)
        data["against"] = [row.to_dict() for row in rows]
        lines += ["", *_table(rows, str(against))]
    if html is not None:
        from ..report import write_page

        data["html"] = write_page(html, program, title=model, target=str(target))
        lines.append(f"\n{html}: written")
    answer(data, lines, as_json=as_json, ok=ok)


def _show_kit(path: Path | None, *, as_json: bool) -> None:
    """Print the tables of a kit."""
    from ..device_check.kit import Kit
    from ..device_check.tables import lines, outcomes, rules

    if path is None:
        raise typer.BadParameter("a model is missing; try  coreai-torch place net.aimodel")
    kit = Kit.read(path)
    found = rules(kit)
    data = {"outcomes": outcomes(kit), "against": [row.to_dict() for row in found]}
    answer(data, lines(kit, found), as_json=as_json, ok=True)


def _against(found: Placement, path: Path) -> list[Said]:
    """Return what each rule says, beside the units of a compute plan."""
    from ..debugging.compute_plan import ComputePlan
    from ..targets.placing.confusion import confusion, described

    entries = ComputePlan.read(path).entries
    plan = {n: [device.name.lower() for device in e.devices] for n, e in entries.items()}
    return confusion(described(found.ops), plan, found.target)


def _table(rows: Sequence[Said], plan: str) -> Iterator[str]:
    yield f"what the rules say, and what the device of {plan} did"
    for row in rows:
        units = ", ".join(f"{counted(n, 'op')} on {unit}" for unit, n in row.units.most_common())
        yield f"  {row.code:<8} {row.right:4} right {row.wrong:4} wrong  {row.says}: {units}"


def _describe(model: str, found: Placement) -> Iterator[str]:
    yield f"{model} on {found.target}: {counted(found.regions, 'region')}, {found.note}"
    units = ", ".join(f"{counted(count, 'op')} on {unit}" for unit, count in found.units.items())
    yield f"  {units}"
    for border in found.borders:
        yield f"  region {border.before} to {border.after}: {border.bytes:,} bytes"
    for change in found.changes:
        yield f"\n{counted(change.saved, 'region')} fewer if {counted(change.ops, 'op')} ran there"
        yield f"  at    {change.first.name}, {change.first.place or 'no module recorded'}"
        for rule in change.rules:
            yield f"  why   {rule.reason} ({rule.confidence} confidence)"
            yield f"  try   {rule.hint}"
            yield f"  from  {rule.source}"
            yield f"  code  {rule.code}"
    notes = {rule.code: rule for op in found.ops for rule in op.notes}
    for rule in notes.values():
        count = sum(rule in op.notes for op in found.ops)
        yield f"\nnote: {rule.reason}, {counted(count, 'time')}"
        yield f"  try   {rule.hint}"
        yield f"  from  {rule.source} ({rule.confidence} confidence)"
        yield f"  code  {rule.code}"
