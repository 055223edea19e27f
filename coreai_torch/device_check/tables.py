"""What a kit says about the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..debugging.compute_plan import ComputePlan
from ..targets.placing import RULES
from ..targets.placing.confusion import Said, confusion, joined
from .kit import Kit


def rules(kit: Kit) -> list[Said]:
    """Compare each estimate with the compute plan of the same unit, and add them up by rule."""
    tables = []
    for program in kit.programs:
        for result in program["results"]:
            estimate = program["estimate"].get(result["unit"])
            if estimate is not None and result["plan"] is not None:
                entries = ComputePlan.read(result["plan"]).entries
                plan = {n: [d.name.lower() for d in e.devices] for n, e in entries.items()}
                tables.append(confusion(estimate["ops"], plan, result["unit"]))
    return joined(tables)


def outcomes(kit: Kit) -> list[dict[str, Any]]:
    """Return a row for each program of a rule and each unit: what the rule says, what happened."""
    pairs = [(program, result) for program in kit.programs for result in program["results"]]
    return [_outcome(program, result) for program, result in pairs]


def _outcome(program: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    rule = next((rule for rule in RULES if rule.code == program["code"]), None)
    return {
        "code": program["code"],
        "effect": rule.effect if rule else "",
        "says": rule.reason if rule else "",
        "program": program["name"],
        "form": program["form"],
        "unit": result["unit"],
        "status": result["status"],
        "median_ms": result.get("median_ms"),
        "error": result["error"].partition("\n")[0],
    }


def lines(kit: Kit, against: Sequence[Said]) -> Iterator[str]:
    """Yield the tables as text."""
    machine = ", ".join(f"{name} {text}" for name, text in kit.data["machine"].items() if text)
    yield f"{len(kit.programs)} programs on {', '.join(kit.data['units'])}; {machine}"
    for name, why in kit.data.get("skipped", {}).items():
        yield f"  skipped {name}: {why}"
    yield f"\n{'rule':<8} {'program':<24} {'form':<12} {'unit':<14} {'status':<8} {'ms':>9}"
    for row in outcomes(kit):
        time = "" if row["median_ms"] is None else f"{row['median_ms']:.3f}"
        yield (
            f"{row['code']:<8} {row['program']:<24} {row['form']:<12} {row['unit']:<14} "
            f"{row['status']:<8} {time:>9}  {row['error']}"
        ).rstrip()
    if not against:
        yield "\nno compute plan was recorded: the units of single ops are unknown"
        return
    yield f"\n{'rule':<8} {'right':>6} {'wrong':>6}  what it says, and the units of the plans"
    for said in against:
        units = ", ".join(f"{count} on {unit}" for unit, count in said.units.most_common())
        yield f"{said.code:<8} {said.right:6} {said.wrong:6}  {said.says}: {units}"
