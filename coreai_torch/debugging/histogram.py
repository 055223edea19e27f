"""Count the operations of a program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import IO, Any

from ..asset import reading
from ..asset.summary import ops_of


@dataclass(frozen=True)
class CompositeHistogram:
    """A graph that other graphs call: its composite, its name, its calls and what is inside."""

    label: str
    symbol: str
    invocations: int
    histogram: OperationHistogram

    @property
    def size(self) -> int:
        """The number of operations inside."""
        return self.histogram.size


@dataclass(frozen=True)
class OperationHistogram:
    """How often each operation occurs in the entry points, the most frequent first."""

    counts: dict[str, int]
    composites: tuple[CompositeHistogram, ...] = ()

    @property
    def size(self) -> int:
        """The number of operations in the entry points."""
        return sum(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        inner = [
            {
                "label": c.label,
                "symbol": c.symbol,
                "invocations": c.invocations,
                "size": c.size,
                "counts": c.histogram.counts,
            }
            for c in self.composites
        ]
        return {"counts": self.counts, "size": self.size, "composites": inner}

    def write_summary(self, stream: IO[str]) -> None:
        """Write a line for each operation, and for those of each composite."""
        for op, count in self.counts.items():
            stream.write(f"{count:6d}  {op}\n")
        for composite in self.composites:
            stream.write(f"\n{composite.symbol}, called {composite.invocations} times\n")
            for op, count in composite.histogram.counts.items():
                stream.write(f"{count:6d}  {op}\n")


def operation_histogram(program: reading.Source) -> OperationHistogram:
    """Count the operations of a program, an asset, or the path of one."""
    functions = reading.read(program, largest=0).functions.values()
    every = [op for function in functions for op in ops_of(function.body)]
    calls = Counter(op.attributes["callee"] for op in every if op.name == "coreai.invoke")
    public = [op for f in functions if not f.is_private for op in ops_of(f.body)]
    composites = tuple(
        CompositeHistogram(
            f.composite or f.name,
            f.name,
            calls[f.name],
            OperationHistogram(_count(ops_of(f.body))),
        )
        for f in functions
        if f.is_private
    )
    return OperationHistogram(_count(public), composites)


def _count(ops: Any) -> dict[str, int]:
    return dict(Counter(op.name for op in ops).most_common())
