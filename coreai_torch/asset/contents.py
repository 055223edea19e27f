"""The contents of a program as HTML: signature, composites, ops and constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ..formatting import counted, size
from .markup import Markup, bar, element, joined, table


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


_KINDS = {"inputs": "input", "outputs": "output", "states": "state"}


def signature(summary: Figures) -> Markup:
    """Return a table of inputs, outputs and states for each function."""
    return joined(*(_function(function) for function in summary.functions))


def _function(function: FunctionSummary) -> Markup:
    rows = [
        (kind, element("code", port.name), element("code", port.type))
        for what, kind in _KINDS.items()
        for port in getattr(function, what)
    ]
    caption = joined(
        element("code", function.name), element("span", counted(function.ops, "op"), class_="quiet")
    )
    return joined(element("h3", caption), table(("", "name", "type"), rows, "ports"))


def pills(counts: Iterable[tuple[str, int]], class_: str) -> Markup:
    """Return names with counts; a click searches for the name on pages with a search field."""
    return element(
        "ul",
        *(
            element("li", element("button", *_pill(name, count), type="button", data_search=name))
            for name, count in counts
        ),
        class_=f"pills {class_}",
    )


def _pill(name: str, count: int) -> tuple[str, str]:
    return name, element("span", f"{count}", class_="count")


def op_counts(summary: Figures) -> list[tuple[str, int]]:
    """Return the counts of ops by short name, without invokes and outputs."""
    counts: Counter[str] = Counter()
    for name, count in summary.ops.items():
        if name not in ("coreai.output", "coreai.invoke"):
            counts[short_name(name)] += count
    return counts.most_common()


def short_name(op: str) -> str:
    """Return `add` for `coreai.decomposable.broadcasting_add`."""
    plain = op.removeprefix("coreai.")
    inner = plain.removeprefix("decomposable.")
    return plain if inner == plain else inner.removeprefix("broadcasting_")


def dtypes(summary: Figures) -> Markup:
    """Return the constants by dtype, the largest first."""
    whole = summary.weight_bytes or 1
    rows = [
        (element("code", dtype), f"{count}", size(nbytes), bar(nbytes / whole))
        for dtype, (count, nbytes) in summary.weights.items()
    ]
    return table(("dtype", "constants", "size", ""), rows, "dtypes")
