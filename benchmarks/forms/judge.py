"""Compare the ops of a program with those that the published converter emits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .reasons import REASONS

# Kinds of ops that devices run badly: control flow, positions computed at run time, guards.
_FOREIGN = ("while", "if", "gather", "scatter", "slice_update", "where", "non_zero", "argsort")

# A resize by an integer is a broadcast and two reshapes on each axis, where the published converter
# emits one of these.
_RESIZES = ("interpolate", "gather")
_REPEATS = ("broadcast_in_dims", "broadcast_to", "reshape", "expand_dims")
_LONGEST = 4


@dataclass(frozen=True)
class Row:
    """One program in one dtype: what this and the published converter emit."""

    name: str
    family: str
    dtype: str
    ours: dict[str, Any]
    published: dict[str, Any]
    commit: str = ""

    @property
    def key(self) -> str:
        """The name and the dtype."""
        return f"{self.name} {self.dtype}"

    @property
    def is_compared(self) -> bool:
        """Whether both converters converted it."""
        return not self.problem

    @property
    def problem(self) -> str:
        """Why it is not compared."""
        ours, theirs = self.ours.get("problem", ""), self.published.get("problem", "")
        return f"ours: {ours}" if ours else f"published: {theirs}" if theirs else ""

    @property
    def ops(self) -> tuple[int, int]:
        """The numbers of ops, ours first."""
        return sum(self.ours["ops"].values()), sum(self.published["ops"].values())

    @property
    def foreign(self) -> dict[str, int]:
        """Our ops of foreign kinds that the published program lacks."""
        theirs = {_foreign(kind) for kind in self.published["ops"]}
        return {
            k: n for k, n in self.ours["ops"].items() if is_foreign(k) and _foreign(k) not in theirs
        }

    @property
    def casts(self) -> tuple[int, int]:
        """The numbers of casts, ours first."""
        return self.ours["ops"].get("cast", 0), self.published["ops"].get("cast", 0)

    @property
    def is_plain(self) -> bool:
        """Whether it has at most as many ops, but resizes by broadcasts, and no foreign ones."""
        ours, theirs = self.ops
        return ours - self._broadcasts <= theirs and not self.foreign

    @property
    def reason(self) -> str:
        """Why it is not plain, if a guard must stay."""
        return "" if self.is_plain else REASONS.get(self.name, "")

    @property
    def _broadcasts(self) -> int:
        """The ops more that resize by broadcasts: up to four for each resize or gather less."""
        more = {k: n - self.published["ops"].get(k, 0) for k, n in self.ours["ops"].items()}
        fewer = {k: n - self.ours["ops"].get(k, 0) for k, n in self.published["ops"].items()}
        replaced = sum(max(n, 0) for k, n in fewer.items() if k.startswith(_RESIZES))
        return min(sum(max(more.get(kind, 0), 0) for kind in _REPEATS), _LONGEST * replaced)

    def findings(self, target: str) -> tuple[int, int]:
        """Return the numbers of places that rules about a target find, ours first.

        Those about paths of source files, which concern stripping, are not counted.
        """
        both = (side["findings"][target].items() for side in (self.ours, self.published))
        first, second = (sum(n for code, n in found if code != "HAZ05") for found in both)
        return first, second


def is_foreign(kind: str) -> bool:
    """Return whether devices run an op of this kind badly."""
    return bool(_foreign(kind))


def _foreign(kind: str) -> str:
    """Return the foreign kind of an op, as `gather` for `gather_nd`; nothing for other ops."""
    for one in _FOREIGN:
        is_family = one in ("gather", "scatter", "while", "if")
        if kind == one or (is_family and kind.startswith(f"{one}_")):
            return one
    return ""


@dataclass(frozen=True)
class Total:
    """The sums over all compared programs of one dtype."""

    compared: int
    plain: int
    explained: int  # not plain, with a reason
    casts: tuple[int, int]
    float32: tuple[int, int]


def total(rows: Iterable[Row]) -> Total:
    """Add up the compared rows."""
    compared = [row for row in rows if row.is_compared]

    def both(name: str) -> tuple[int, int]:
        return sum(r.ours[name] for r in compared), sum(r.published[name] for r in compared)

    casts = [row.casts for row in compared]
    return Total(
        len(compared),
        sum(row.is_plain for row in compared),
        sum(bool(row.reason) for row in compared),
        (sum(ours for ours, _ in casts), sum(theirs for _, theirs in casts)),
        both("float32"),
    )


def worst(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows that are not plain by family, those with the most surplus ops first."""
    by_family: dict[str, list[Row]] = {}
    for row in rows:
        if row.is_compared and not row.is_plain:
            by_family.setdefault(row.family, []).append(row)
    for found in by_family.values():
        found.sort(key=lambda row: row.ops[1] - row.ops[0])
    return dict(sorted(by_family.items(), key=lambda item: -len(item[1])))
