"""Report of a compression: error and size of each weight, and why others are unchanged."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class CompressedWeight:
    """One weight of the model, compressed or not."""

    name: str
    shape: tuple[int, ...]
    scheme: str | None  # None if the weight is unchanged
    bits: float  # per element, including scales and tables
    error: float  # root mean square of the difference, relative to that of the weight
    bytes_before: int
    bytes: int
    why: str | None = None  # why it is unchanged, or which weight it shares its bytes with
    output_error: float | None = None  # of the layer on the calibration data, relative
    inputs: str | None = None  # the dtype that the layer's inputs are rounded to

    @property
    def snr(self) -> float:
        """Return the signal-to-noise ratio in decibels; infinite without error."""
        return math.inf if self.error == 0 else -20 * math.log10(self.error)


@dataclass(frozen=True)
class CompressionReport:
    """All weights in the model's order; `str(report)` is a table."""

    rows: tuple[CompressedWeight, ...]
    model: nn.Module
    error: float | None = None  # of the model, if it was measured

    @property
    def compressed(self) -> list[CompressedWeight]:
        """Return the weights that were compressed."""
        return [row for row in self.rows if row.scheme is not None]

    @property
    def left_alone(self) -> list[CompressedWeight]:
        """Return the weights that are unchanged."""
        return [row for row in self.rows if row.scheme is None]

    @property
    def bytes_before(self) -> int:
        """Return the bytes of all weights before compression."""
        return sum(row.bytes_before for row in self.rows)

    @property
    def bytes(self) -> int:
        """Return the bytes of all weights after compression, including unchanged ones."""
        return sum(row.bytes for row in self.rows)

    def __getitem__(self, name: str) -> CompressedWeight:
        """Return the row of a weight."""
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        """Return a table of all weights with totals."""
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
        calibrated = any(row.output_error is not None for row in self.rows)
        if calibrated:
            table.add_column("output error", justify="right")
        table.add_column("bytes", justify="right", footer=f"{self.bytes:,} ({share:.1%})")
        table.add_column("note")
        for row in self.rows:
            cells = _cells(row)
            if calibrated:
                shown = "" if row.output_error is None else f"{row.output_error:.2%}"
                cells.insert(6, shown)
            table.add_row(*cells)
        console = Console(file=io.StringIO(), width=200, color_system=None)
        console.print(table)
        printed: str = console.file.getvalue()  # type: ignore[attr-defined]
        lines = [line.rstrip() for line in printed.splitlines()]
        if self.error is not None:
            lines.append(f"error of the model: {self.error:.4g}")
        return "\n".join(lines)


def _cells(row: CompressedWeight) -> list[str]:
    sizes = "x".join(map(str, row.shape))
    if row.scheme is None:
        return [row.name, sizes, "", f"{row.bits:.0f}", "", "", f"{row.bytes:,}", row.why or ""]
    decibels = "exact" if math.isinf(row.snr) else f"{row.snr:.1f}"
    numbers = [f"{row.bits:.2f}", f"{row.error:.2%}", decibels, f"{row.bytes:,}"]
    inputs = f"inputs in {row.inputs}" if row.inputs else ""
    return [row.name, sizes, row.scheme, *numbers, ", ".join(filter(None, (inputs, row.why)))]
