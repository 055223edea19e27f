"""Compare estimates with the units that devices chose, by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .estimate import PlacedOp

NO_RULE = "none"


@dataclass
class Said:
    """What a rule says about ops, and the units that the device chose for them.

    The code `NO_RULE` is that of ops which no rule keeps off the target.
    """

    code: str
    says: str
    target: str
    ops: int = 0
    units: Counter[str] = field(default_factory=Counter)  # of the device; "unknown": no entry

    @property
    def right(self) -> int:
        """The number of ops for which the device did what the rule says."""
        on_target = self.units[self.target]
        known = self.units.total() - self.units["unknown"]
        return on_target if self.code == NO_RULE else known - on_target

    @property
    def wrong(self) -> int:
        """The number of ops for which it did something else."""
        return self.units.total() - self.units["unknown"] - self.right

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        names = ("code", "says", "target", "ops", "right", "wrong")
        return {name: getattr(self, name) for name in names} | {"units": dict(self.units)}


def confusion(
    ops: Iterable[Mapping[str, Any]], plan: Mapping[int, Collection[str]], target: str
) -> list[Said]:
    """Return a row for each rule: `ops` is an estimate as data, `plan` has the units by id.

    An op that the device divides between units counts for the first of them by name.
    """
    rows: dict[str, Said] = {}
    for op in ops:
        chosen = sorted(plan.get(op["op_id"], ())) if op.get("op_id") is not None else []
        for code, says in _said(op, target):
            row = rows.setdefault(code, Said(code, says, target))
            row.ops += 1
            row.units[chosen[0] if chosen else "unknown"] += 1
    return sorted(rows.values(), key=lambda row: (-row.wrong, row.code))


def joined(tables: Iterable[Iterable[Said]]) -> list[Said]:
    """Add the rows of several programs."""
    rows: dict[tuple[str, str], Said] = {}
    for table in tables:
        for row in table:
            key = row.code, row.target
            total = rows.setdefault(key, Said(row.code, row.says, row.target))
            total.ops += row.ops
            total.units.update(row.units)
    return sorted(rows.values(), key=lambda row: (-row.wrong, row.code))


def described(ops: Iterable[PlacedOp]) -> list[dict[str, Any]]:
    """Return what `confusion` needs of an estimate, as plain data."""
    return [
        {"op_id": op.op_id, "op": op.name, "rules": [[r.code, r.reason] for r in op.rules]}
        for op in ops
    ]


def _said(op: Mapping[str, Any], target: str) -> Iterator[tuple[str, str]]:
    if not op["rules"]:
        yield NO_RULE, f"runs on {target}"
    yield from dict(op["rules"]).items()
