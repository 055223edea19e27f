"""The figures of a program that displays read: functions, ports, composites, weights, ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class PortSummary:
    """An input, output or state."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]  # None for a dynamic size
    ranges: dict[int, str] = field(default_factory=dict)  # of dynamic sizes: `batch 1..8`

    @property
    def type(self) -> str:
        """Return `f32[batch 1..8, 3, ?, ?]`."""
        sizes = (self.ranges.get(i, "?") if n is None else str(n) for i, n in enumerate(self.shape))
        return f"{self.dtype}[{', '.join(sizes)}]"

    def __str__(self) -> str:
        """Return `x: f32[batch 1..8, 3, ?, ?]`."""
        return f"{self.name}: {self.type}"


@dataclass(frozen=True)
class FunctionSummary:
    """One entry point."""

    name: str
    inputs: tuple[PortSummary, ...]
    outputs: tuple[PortSummary, ...]
    states: tuple[PortSummary, ...]
    ops: int  # with the ops of the graphs that it calls, counted per call


class Figures(Protocol):
    """The part of a `Summary` that displays read."""

    @property
    def functions(self) -> tuple[FunctionSummary, ...]: ...

    @property
    def composites(self) -> dict[str, int]: ...

    @property
    def ops(self) -> dict[str, int]: ...

    @property
    def weights(self) -> dict[str, tuple[int, int]]: ...

    @property
    def file_bytes(self) -> int | None: ...

    @property
    def weight_bytes(self) -> int: ...
