"""Compare two compute plans: which operations moved to another unit, and why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import IO, Any

from ..asset import reading
from .compute_plan import ComputeDevice, ComputePlan
from .graph_match import OpIdAlignment, WeightPolicy, op_id_alignment
from .modules import UNATTRIBUTED

_WIDTH = 100


@dataclass(frozen=True)
class ComputePlacementChange:
    """An operation on other devices; ids are those of the earlier program."""

    operation_id: int
    before: frozenset[ComputeDevice]
    after: frozenset[ComputeDevice]
    validation_before: frozenset[str] = frozenset()
    validation_after: frozenset[str] = frozenset()
    modified: bool = False
    module: str = UNATTRIBUTED

    @property
    def reason(self) -> str:
        """The messages that only the later plan has, else those of the earlier one."""
        new = self.validation_after - self.validation_before
        return "; ".join(sorted(new or self.validation_before))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "operation_id": self.operation_id,
            "before": _names(self.before),
            "after": _names(self.after),
            "validation_before": sorted(self.validation_before),
            "validation_after": sorted(self.validation_after),
            "modified": self.modified,
            "module": self.module,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class ComputePlanDiff:
    """Paired operations by what happened to them, and the ids that one program has alone.

    `unresolved` are pairs for which a plan has no entry. `changes`, `unchanged` and `unresolved`
    are all pairs of the alignment.
    """

    alignment: OpIdAlignment
    changes: tuple[ComputePlacementChange, ...] = ()
    only_before: tuple[int, ...] = ()
    only_after: tuple[int, ...] = ()
    unchanged: tuple[int, ...] = ()
    unresolved: tuple[int, ...] = ()

    def by_module(self) -> dict[str, list[ComputePlacementChange]]:
        """Return the moves by module, those with the most first."""
        found: dict[str, list[ComputePlacementChange]] = defaultdict(list)
        for change in self.changes:
            found[change.module].append(change)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))

    def write_to(self, stream: IO[str], width: int = _WIDTH) -> None:
        """Write a line for each move, by module."""
        stream.write(
            f"{len(self.changes)} moved, {len(self.unchanged)} unchanged, {len(self.unresolved)} "
            f"without an entry, {len(self.only_before)} only before, {len(self.only_after)} only "
            "after\n"
        )
        for module, changes in self.by_module().items():
            stream.write(f"{module}\n")
            for change in changes:
                before, after = (", ".join(_names(s)) for s in (change.before, change.after))
                line = f"  #{change.operation_id}  {before} -> {after}  {change.reason}"
                stream.write(f"{line.rstrip()[:width]}\n")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "alignment": self.alignment.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "unchanged": list(self.unchanged),
            "unresolved": list(self.unresolved),
        }


def _names(devices: frozenset[ComputeDevice]) -> list[str]:
    return sorted(device.name for device in devices)


async def compare_compute_plans(
    before_program: reading.Source,
    after_program: reading.Source,
    entry_point: str = "main",
    *,
    specialization_options: Any = None,
    weights: WeightPolicy = WeightPolicy.IGNORE,
) -> ComputePlanDiff:
    """Compare the plans of two programs; this needs a device, as `ComputePlan.from_program`.

    With saved plans call `diff_compute_plans(before, after, op_id_alignment(...))`.
    """
    before = await ComputePlan.from_program(before_program, specialization_options)
    after = await ComputePlan.from_program(after_program, specialization_options)
    alignment = op_id_alignment(before_program, after_program, weights, entry_point=entry_point)
    return diff_compute_plans(before, after, alignment)


def diff_compute_plans(
    before: ComputePlan, after: ComputePlan, alignment: OpIdAlignment
) -> ComputePlanDiff:
    """Compare two plans whose operations are paired."""
    unknown = {ComputeDevice.UNKNOWN}
    changes, unchanged, unresolved = [], [], []
    for first, second in alignment.mapping.items():
        old, new = before.devices_for_id(first), after.devices_for_id(second)
        if unknown in (old, new):
            unresolved.append(first)
        elif old == new:
            unchanged.append(first)
        else:
            changes.append(
                ComputePlacementChange(
                    first,
                    frozenset(old),
                    frozenset(new),
                    frozenset(before.get_validation_messages(first)),
                    frozenset(after.get_validation_messages(second)),
                    first in alignment.modified,
                    alignment.modules.get(first) or UNATTRIBUTED,
                )
            )
    return ComputePlanDiff(
        alignment,
        tuple(changes),
        tuple(sorted(alignment.removed & before.entries.keys())),
        tuple(sorted(alignment.added & after.entries.keys())),
        tuple(unchanged),
        tuple(unresolved),
    )
