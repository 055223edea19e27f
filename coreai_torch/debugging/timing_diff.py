"""Compare the times of the operations of two programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import IO, Any

from .benchmarker import BenchmarkResult, OperationTiming
from .graph_match import OpIdAlignment


class Resize(Enum):
    """Whether the later dispatch has more operations, or fewer."""

    GAINED = "gained"
    LOST = "lost"


@dataclass(frozen=True)
class MatchedDispatch:
    """One dispatch of both programs, with the same operations; ids are the earlier ones."""

    op_ids: frozenset[int]
    before_ms: float
    after_ms: float
    modified: bool = False

    @property
    def median_delta_ms(self) -> float:
        """The later time minus the earlier one."""
        return self.after_ms - self.before_ms


@dataclass(frozen=True)
class ResizedDispatch:
    """A dispatch that took over operations, or gave some away; `extra_op_ids` are these."""

    op_ids: frozenset[int]
    resize: Resize
    extra_op_ids: frozenset[int]
    before_ms: float
    after_ms: float


@dataclass(frozen=True)
class TimingDiff:
    """Dispatches of two programs by how they correspond; ids are those of the earlier program."""

    matched: tuple[MatchedDispatch, ...]
    resized: tuple[ResizedDispatch, ...]
    only_before: tuple[OperationTiming, ...]
    only_after: tuple[OperationTiming, ...]
    before_dispatches: int
    after_dispatches: int

    def write_to(self, stream: IO[str]) -> None:
        """Write a line for each dispatch, the largest difference first."""
        stream.write(
            f"{self.before_dispatches} dispatches before, {self.after_dispatches} after: "
            f"{len(self.matched)} matched, {len(self.resized)} resized\n"
        )
        for row in sorted(self.matched, key=lambda row: -abs(row.median_delta_ms)):
            mark = "  modified" if row.modified else ""
            stream.write(f"  {row.median_delta_ms:+9.3f} ms  {_listed(row.op_ids)}{mark}\n")
        for other in self.resized:
            extra = f"{other.resize.value} {_listed(other.extra_op_ids)}"
            delta = other.after_ms - other.before_ms
            stream.write(f"  {delta:+9.3f} ms  {_listed(other.op_ids)}  {extra}\n")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; infinities and NaN are None."""
        return {
            "matched": [
                _plain({**asdict(row), "median_delta_ms": row.median_delta_ms})
                for row in self.matched
            ],
            "resized": [_plain(asdict(row)) for row in self.resized],
            "only_before": [_plain(asdict(row)) for row in self.only_before],
            "only_after": [_plain(asdict(row)) for row in self.only_after],
            "before_dispatches": self.before_dispatches,
            "after_dispatches": self.after_dispatches,
        }


def compare_results(
    alignment: OpIdAlignment, before: BenchmarkResult, after: BenchmarkResult
) -> TimingDiff:
    """Pair the dispatches that have the same operations, and those that share some.

    Operations that the alignment finds ambiguous stay unpaired.
    """
    doubtful = alignment.ambiguity.ids
    earlier = {new: old for old, new in alignment.mapping.items() if old not in doubtful}
    ours = {_ids(row): row for row in before.operations}
    theirs = {_translated(row, earlier): row for row in after.operations}
    matched, resized = [], []
    for ids in _unique(before.operations):
        if ids in theirs:
            times = ours[ids].milliseconds, theirs[ids].milliseconds
            matched.append(MatchedDispatch(ids, *times, bool(ids & alignment.modified)))
    left = {ids: row for ids, row in ours.items() if ids not in theirs}
    right = {ids: row for ids, row in theirs.items() if ids not in ours}
    for ids, row in list(left.items()):
        other = next((o for o in right if ids and (ids < o or ids > o)), None)
        if other is None:
            continue
        gained = ids < other
        resized.append(
            ResizedDispatch(
                ids,
                Resize.GAINED if gained else Resize.LOST,
                frozenset(other ^ ids),
                row.milliseconds,
                right[other].milliseconds,
            )
        )
        del left[ids], right[other]
    return TimingDiff(
        tuple(matched),
        tuple(resized),
        tuple(left.values()),
        tuple(right.values()),
        len(before.operations),
        len(after.operations),
    )


def _ids(row: OperationTiming) -> frozenset[int]:
    """Return the operations of a dispatch: one, or those in `op_ids` of a device's profile."""
    return frozenset(getattr(row, "op_ids", None) or (row.operation_id,))


def _translated(row: OperationTiming, earlier: Mapping[int, int]) -> frozenset[int]:
    """Return the operations by their earlier ids; negative numbers for those that are new."""
    return frozenset(earlier.get(number, -1 - number) for number in _ids(row))


def _unique(rows: Iterable[OperationTiming]) -> list[frozenset[int]]:
    counts = Counter(_ids(row) for row in rows)
    return [ids for ids, count in counts.items() if count == 1]


def _listed(ids: frozenset[int]) -> str:
    return " ".join(f"#{number}" for number in sorted(ids))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that JSON can hold."""
    kinds: dict[type, Any] = {frozenset: sorted, Resize: lambda r: r.value}
    return {
        name: None
        if isinstance(value, float) and not math.isfinite(value)
        else kinds.get(type(value), lambda v: v)(value)
        for name, value in row.items()
    }
