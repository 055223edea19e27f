"""Report of recognized composites and of near misses with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """One composite of the converted program, and its place in the model."""

    composite: str
    path: str  # path of the module
    node: str  # the FX node whose value it computes
    kept: bool = False  # export did not decompose it
    entrypoint: str = "main"


@dataclass(frozen=True)
class Missed:
    """A near miss of a composite, which was not replaced."""

    composite: str
    path: str
    node: str
    why: str
    entrypoint: str = "main"


@dataclass(frozen=True)
class RecognitionReport:
    """All findings; printed, one line for each place."""

    found: tuple[Found, ...] = ()
    missed: tuple[Missed, ...] = ()

    @classmethod
    def joined(cls, parts: Iterable[RecognitionReport]) -> RecognitionReport:
        """Combine the reports of several programs."""
        every = list(parts)
        return cls(
            tuple(row for part in every for row in part.found),
            tuple(row for part in every for row in part.missed),
        )

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of each composite."""
        return dict(Counter(row.composite for row in self.found))

    def at(self, path: str) -> list[Found]:
        """Return the composites in a module and its submodules."""
        return [row for row in self.found if row.path == path or row.path.startswith(f"{path}.")]

    def __str__(self) -> str:
        """Return counts, then places, then near misses."""
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        lines = [f"recognised: {counts or 'nothing'}"]
        for one in self.found:
            kept = " (exported whole)" if one.kept else ""
            lines.append(f"  {one.composite} in {_place(one)}{kept}")
        if self.missed:
            lines.append(f"left alone: {len(self.missed)}")
        lines += [f"  {one.composite} in {_place(one)}: {one.why}" for one in self.missed]
        return "\n".join(lines)


def _place(row: Found | Missed) -> str:
    entrypoint = "" if row.entrypoint == "main" else f"{row.entrypoint}: "
    return f"{entrypoint}{row.path or 'the model itself'} (%{row.node})"
