"""What was compressed, how well, to how many bytes, and what was left alone and why."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class CompressedWeight:
    """One weight of the model, or one that could have been."""

    name: str
    shape: tuple[int, ...]
    scheme: str | None  # None: it was left alone
    bits: float  # each number takes, scales and tables included
    error: float  # root mean square of the difference, relative to that of the weight
    bytes_before: int
    bytes: int
    why: str | None = None  # it was left alone, or takes no bytes of its own

    @property
    def snr(self) -> float:
        """The signal over the error, in decibels; infinite if there is none."""
        return math.inf if self.error == 0 else -20 * math.log10(self.error)


@dataclass(frozen=True)
class CompressionReport:
    """All weights in the model's order; printed, a table."""

    rows: tuple[CompressedWeight, ...]
    model: nn.Module

    @property
    def compressed(self) -> list[CompressedWeight]:
        """The weights that a scheme was applied to."""
        return [row for row in self.rows if row.scheme is not None]

    @property
    def left_alone(self) -> list[CompressedWeight]:
        """The weights that are as they were."""
        return [row for row in self.rows if row.scheme is None]

    @property
    def bytes_before(self) -> int:
        """What all weights took."""
        return sum(row.bytes_before for row in self.rows)

    @property
    def bytes(self) -> int:
        """What all weights take, the ones left alone included."""
        return sum(row.bytes for row in self.rows)

    def __getitem__(self, name: str) -> CompressedWeight:
        """The row of a weight."""
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        """A table of all weights, and the sum."""
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_footer=True)
        share = self.bytes / max(self.bytes_before, 1)
        table.add_column("weight", footer=f"{len(self.compressed)} of {len(self.rows)} weights")
        table.add_column("shape")
        table.add_column("scheme")
        table.add_column("bits", justify="right")
        table.add_column("error", justify="right")
        table.add_column("dB", justify="right")
        table.add_column("bytes", justify="right", footer=f"{self.bytes:,} ({share:.1%})")
        table.add_column("note")
        for row in self.rows:
            table.add_row(*_cells(row))
        console = Console(file=io.StringIO(), width=200, color_system=None)
        console.print(table)
        printed: str = console.file.getvalue()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in printed.splitlines())


def _cells(row: CompressedWeight) -> list[str]:
    sizes = "x".join(map(str, row.shape))
    if row.scheme is None:
        return [row.name, sizes, "", f"{row.bits:.0f}", "", "", f"{row.bytes:,}", row.why or ""]
    decibels = "exact" if math.isinf(row.snr) else f"{row.snr:.1f}"
    numbers = [f"{row.bits:.2f}", f"{row.error:.2%}", decibels, f"{row.bytes:,}"]
    return [row.name, sizes, row.scheme, *numbers, row.why or ""]
