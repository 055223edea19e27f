"""Compare two runs: what broke, what got better, what got slower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .columns import PASS
from .results import read_rows

Rows = Mapping[str, Mapping[str, Any]]
SLOWER = 1.5  # ratio of times from which on a task counts as slower
_LEAST = 1.0  # seconds; shorter differences are noise


@dataclass(frozen=True)
class Change:
    """A task with different results in two runs."""

    id: str
    before: str
    after: str


@dataclass(frozen=True)
class Comparison:
    """The differences of a run to an earlier one."""

    broke: tuple[Change, ...] = ()  # passed before
    fixed: tuple[Change, ...] = ()  # passes now
    changed: tuple[Change, ...] = ()  # fails for another reason
    slower: tuple[Change, ...] = ()
    faster: tuple[Change, ...] = ()
    new: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing broke."""
        return not self.broke

    def lines(self, most: int = 20) -> Iterator[str]:
        """Yield a summary, and the first tasks of each kind."""
        kinds = ("broke", "fixed", "changed", "slower", "faster")
        named = {kind: getattr(self, kind) for kind in kinds}
        counts = [f"{len(found)} {kind}" for kind, found in named.items()]
        yield ", ".join([*counts, f"{len(self.new)} new", f"{len(self.missing)} missing"])
        for kind, found in named.items():
            for change in found[:most]:
                yield f"{kind:<8}{change.id}: {change.before} -> {change.after}"
            yield from _rest(len(found), most)
        for name in self.missing[:most]:
            yield f"missing {name}"
        yield from _rest(len(self.missing), most)


def _rest(count: int, most: int) -> Iterator[str]:
    if count > most:
        yield f"        and {count - most} more"


def compare(
    before: Path | str | Rows, after: Path | str | Rows, *, slower: float = SLOWER
) -> Comparison:
    """Compare the rows, or the folders, of two runs by the ids of their tasks."""
    old, new = _by_id(before), _by_id(after)
    both = [(old[name], row) for name, row in new.items() if name in old]
    passing = [(o, n) for o, n in both if o["verdict"] == n["verdict"] == PASS]
    failing = [(o, n) for o, n in both if PASS not in (o["verdict"], n["verdict"])]
    return Comparison(
        broke=tuple(
            _change(o, n) for o, n in both if o["verdict"] == PASS and n["verdict"] != PASS
        ),
        fixed=tuple(
            _change(o, n) for o, n in both if o["verdict"] != PASS and n["verdict"] == PASS
        ),
        changed=tuple(_change(o, n) for o, n in failing if _reason(o) != _reason(n)),
        slower=tuple(_times(o, n) for o, n in passing if _is_slower(o, n, slower)),
        faster=tuple(_times(o, n) for o, n in passing if _is_slower(n, o, slower)),
        new=tuple(name for name in new if name not in old),
        missing=tuple(name for name in old if name not in new),
    )


def _by_id(given: Path | str | Rows) -> Rows:
    if isinstance(given, Mapping):
        return given
    return {row["id"]: row for row in read_rows(given)}


def _reason(row: Mapping[str, Any]) -> str:
    return f"{row['verdict']}: {row['cause']}" if row["cause"] else str(row["verdict"])


def _change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change:
    return Change(new["id"], _reason(old), _reason(new))


def _times(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change:
    return Change(new["id"], f"{old['seconds']:.1f} s", f"{new['seconds']:.1f} s")


def _is_slower(old: Mapping[str, Any], new: Mapping[str, Any], ratio: float) -> bool:
    before, after = old["seconds"] or 0.0, new["seconds"] or 0.0
    return after > ratio * before and after - before > _LEAST
