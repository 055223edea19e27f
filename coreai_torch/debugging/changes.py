"""What changed between two programs, by module."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from enum import Enum
from typing import IO, Any

from ..asset import reading
from .graph import operation_ids
from .graph_match import OpIdAlignment, op_id_alignment
from .modules import Attribution, attributions_by_op_id


class OpDiffType(Enum):
    """What happened to an operation."""

    ADDED = "added"
    REMOVED = "removed"
    MODIFIED = "modified"


class OpSide(Enum):
    """The program that an id belongs to."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True)
class OpChange:
    """An operation that one program has alone, or that has other inputs or attributes."""

    change: OpDiffType
    side: OpSide
    op_id: int
    op_name: str
    attribution: Attribution

    @property
    def module_label(self) -> str:
        """The path of the module."""
        return self.attribution.label

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        source = self.attribution.source
        return {
            "change": self.change.value,
            "side": self.side.value,
            "op_id": self.op_id,
            "op_name": self.op_name,
            "module": self.module_label,
            "source": None if source is None else asdict(source),
        }


@dataclass(frozen=True)
class ChangeCounts:
    """How many operations changed, and how."""

    added: int
    removed: int
    modified: int

    @property
    def changed(self) -> int:
        """All of them."""
        return self.added + self.removed + self.modified


@dataclass(frozen=True)
class OpChanges:
    """The changes between two programs; an op that was swapped is removed and added."""

    changes: tuple[OpChange, ...]

    @property
    def counts(self) -> ChangeCounts:
        """The number of changes by type."""
        listed = [change.change for change in self.changes]
        return ChangeCounts(*(listed.count(type_) for type_ in OpDiffType))

    def changes_in(self, label: str) -> list[OpChange]:
        """Return the changes in a module and its submodules, in the order of source lines."""
        found = [
            change
            for change in self.changes
            if change.module_label == label or change.module_label.startswith(f"{label}.")
        ]
        return sorted(found, key=_by_line)

    def by_module(self) -> dict[str, list[OpChange]]:
        """Return the changes by module, those with the most first."""
        found: dict[str, list[OpChange]] = defaultdict(list)
        for change in self.changes:
            found[change.module_label].append(change)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))

    def write_summary(self, stream: IO[str]) -> None:
        """Write the counts, and a line for each change by module."""
        counts = self.counts
        stream.write(
            f"{counts.changed} changed: {counts.added} added, {counts.removed} removed, "
            f"{counts.modified} modified\n"
        )
        for module, changes in self.by_module().items():
            stream.write(f"{module}\n")
            for change in sorted(changes, key=_by_line):
                stream.write(f"  {change.change.value:<8}  #{change.op_id} {change.op_name}\n")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        counts = {"changed": self.counts.changed, **asdict(self.counts)}
        return {"counts": counts, "changes": [change.to_dict() for change in self.changes]}


def _by_line(change: OpChange) -> tuple[str, int, int]:
    source = change.attribution.source
    return (source.filename, source.line, change.op_id) if source else ("", 0, change.op_id)


def compute_changes(before: reading.Source, after: reading.Source) -> OpChanges:
    """Return the operations that were added, removed or modified."""
    alignment: OpIdAlignment = op_id_alignment(before, after)
    rows = [
        *((OpDiffType.ADDED, OpSide.TARGET, i) for i in sorted(alignment.added)),
        *((OpDiffType.REMOVED, OpSide.SOURCE, i) for i in sorted(alignment.removed)),
        *((OpDiffType.MODIFIED, OpSide.SOURCE, i) for i in sorted(alignment.modified)),
    ]
    sides = {OpSide.SOURCE: before, OpSide.TARGET: after}
    places = {side: attributions_by_op_id(program) for side, program in sides.items()}
    names = {side: _names(program) for side, program in sides.items()}
    changes = (OpChange(t, side, i, names[side][i], places[side][i]) for t, side, i in rows)
    return OpChanges(tuple(changes))


def _names(program: reading.Source) -> dict[int, str]:
    return {n: op.name for _, op, n in operation_ids(reading.read(program, largest=0))}
