"""What a rewrite is, and the list of places where one was applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.dialect import Value
from ...mlir.editing import Operation

METADATA = "coreai_torch.rewrites"  # the entry of an asset with the number of places by id
Apply: TypeAlias = Callable[[Operation], Sequence[Value] | None]


@dataclass(frozen=True)
class Rewrite:
    """A construct that is reported to fail on devices, and the ops to emit in its place.

    `code` is that of the rule about the construct, of lint or of placement. `apply` gets one op,
    emits ops before it and returns the values that replace its results, or returns None and emits
    nothing. `on_request` rewrites apply only if their code is asked for.
    """

    code: str
    units: tuple[str, ...]
    summary: str
    apply: Apply
    on_request: bool = False


@dataclass(frozen=True)
class Rewritten:
    """One place where a rewrite was applied."""

    code: str
    summary: str
    graph: str
    op: str
    place: str

    def __str__(self) -> str:
        where = f", {self.place}" if self.place else ""
        return f"{self.code} {self.op} in {self.graph!r}{where}: {self.summary}"


def as_metadata(done: Iterable[Rewritten]) -> dict[str, dict[str, int]]:
    """Return the entry to store in an asset; empty if nothing was rewritten."""
    counted = Counter(one.code for one in done)
    return {METADATA: dict(counted)} if counted else {}
