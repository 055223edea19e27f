"""What was recognised where, and what nearly was and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """One composite of the converted program, and where the model has it."""

    composite: str
    path: str  # of the module that it was traced in
    node: str  # the FX node whose value it computes
    kept: bool = False  # the exporter left it whole; nothing had to be matched
    entrypoint: str = "main"


@dataclass(frozen=True)
class Missed:
    """Something that looks like a composite and was left alone."""

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
        """The findings of several programs as one."""
        every = list(parts)
        return cls(
            tuple(row for part in every for row in part.found),
            tuple(row for part in every for row in part.missed),
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many of each composite were found."""
        return dict(Counter(row.composite for row in self.found))

    def at(self, path: str) -> list[Found]:
        """What was found in a module, its submodules included."""
        return [row for row in self.found if row.path == path or row.path.startswith(f"{path}.")]

    def __str__(self) -> str:
        """Counts, then places, then what was left alone."""
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
