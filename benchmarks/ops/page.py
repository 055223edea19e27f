"""Write the section on single ops of `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
HEADING = "## Single ops at the sizes that models use"

INTRODUCTION = """Written by `make bench-ops`: each call in a separate process, on the bundled
runtime, with one thread. Seconds are processor seconds. Load is saving and loading; memory is the
growth of the process's peak from the converted program on, eager torch included; error is the
greatest difference from eager, relative to the greatest number of the output. Eager `nms` is a loop
in torch, not torchvision's kernel, so its ratio is too low. `sort` is not stable in eager torch, so
the places of equal numbers count as its error. A call keeps the figures of its last run, which may
be of an earlier commit than the one below.
"""

COST = """### Declared costs

`tests/cost` measures every family at two sizes a factor of 8 apart, and fails if the number of ops,
the bytes of the program or the time grows faster than this table says. All other lowerings are
linear in their inputs and outputs.
"""


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def complexity_table(families: Iterable[Any]) -> str:
    """Return the declared costs as a table."""
    header = ["ops", "time", "number of ops", "constants", "reason"]
    rows = [[f.ops, f.time, f.program, f.constants, f.reason] for f in families]
    return _markdown(header, rows)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def results_table(figures: dict[str, dict[str, Any]]) -> str:
    """Return the measured calls as a table."""
    header = ["call", "convert", "load", "run", "eager", "run / eager", "memory MB", "error"]
    rows = []
    for name, f in figures.items():
        if "problem" in f:
            rows.append([name, f["problem"], *[""] * (len(header) - 2)])
            continue
        times = [_time(f[key]) for key in ("convert", "load", "run", "eager")]
        ratio = f"{f['run'] / f['eager']:,.0f}"
        rows.append([name, *times, ratio, f"{f['grown']:,.0f}", f"{f['error']:.0e}"])
    return _markdown(header, rows)


def section_of(text: str) -> str:
    """Return the section on single ops of a page, or nothing."""
    return text[text.index(HEADING) :] if HEADING in text else ""


def write(figures: dict[str, dict[str, Any]], families: Iterable[Any], measured: str) -> None:
    """Replace the section in the page, which it ends."""
    text = PAGE.read_text()
    before = text.removesuffix(section_of(text)).rstrip("\n")
    parts = (HEADING + "\n", INTRODUCTION, measured + "\n", results_table(figures), COST)
    section = "\n".join([*parts, complexity_table(families)])
    PAGE.write_text(f"{before}\n\n{section}")
