"""Write the section on single ops of `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.provenance import describe

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
HEADING = "## Single ops at the sizes that models use"

INTRODUCTION = """Written by `make bench-ops`: each call in a separate process (a fork with the
libraries imported), on the bundled runtime, with one thread. Seconds are processor seconds. Load is
saving and loading; memory is the growth of the process's peak from the converted program on, eager
torch included; error is the greatest difference from eager, relative to the greatest number of the
output. Eager `nms` is a loop in torch, not torchvision's kernel, so its ratio is too low. `sort` is
not stable in eager torch, so any order of equal numbers is right. The last column is the published
converter's run time as a multiple of this converter's, on the same runtime; *fails* means that it
does not convert the call, or that the program does not run, and *wrong*, that its error is above
1e-3. A call keeps the figures of its last run. `while_loop` copies its carried values in each step,
because the runtime may write over them before their last use.
"""
WRONG = 1e-3

COST = """### Declared costs

`tests/cost` measures every family at two sizes a factor of 8 apart, and fails if the number of ops,
the bytes of the program, the peak memory of loading and running, or the time to convert, load or
run grows faster than this table says. All other lowerings are linear in their inputs and outputs:
the same test measures them, and fails if a lowering has no declared cost.
"""


REAL = "### More calls at real sizes"
_REAL_TEXT = """`python -m benchmarks.ops.sweep` runs {count} calls, each with a limit of 90
processor seconds and 8 GB; `benchmarks/ops/real_sizes.json` has the figures of each, with its
commit and versions. They are processor seconds on a busy machine, not quiet timings. The slowest
call takes {slowest} in all (convert, load, run), and the largest process {peak:,.0f} MB.
"""
_NONE_SLOW = "No call fails, is wrong or takes more than 300 times the eager time."
_SOME_SLOW = "These calls fail, are wrong or take more than 300 times the eager time:"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def complexity_table(families: Iterable[Any]) -> str:
    """Return the declared costs as a table."""
    header = ["ops", "time", "number of ops", "constants", "memory", "reason"]
    rows = [[f.ops, f.time, f.program, f.constants, f.memory, f.reason] for f in families]
    return _markdown(header, rows)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def results_table(figures: dict[str, dict[str, Any]]) -> str:
    """Return the measured calls as a table."""
    header = ["call", "convert", "load", "run", "eager", "run / eager", "memory MB", "error"]
    header.append("published / ours")
    rows = []
    for name, f in figures.items():
        if "problem" in f:
            rows.append([name, f["problem"], *[""] * (len(header) - 2)])
            continue
        times = [_time(f[key]) for key in ("convert", "load", "run", "eager")]
        ratio = f"{f['run'] / f['eager']:,.0f}"
        memory, error = f"{f['grown']:,.0f}", f"{f['error']:.0e}"
        rows.append([name, *times, ratio, memory, error, _against(f)])
    return _markdown(header, rows)


def _against(figures: dict[str, Any]) -> str:
    """Return the published converter's run time as a multiple of this converter's."""
    peer = figures.get("published")
    if peer is None:
        return ""
    if "problem" in peer:
        return "fails"
    if peer["error"] > max(WRONG, figures["error"]):
        return "wrong"
    return f"{peer['run'] / figures['run']:.1f}"


def _measured(figures: dict[str, dict[str, Any]]) -> str:
    """Return a sentence for each commit that calls were measured at, and one on the peer."""
    calls: dict[str, list[str]] = {}
    for name, f in figures.items():
        calls.setdefault(describe(f["measured"]), []).append(name)
    latest = max(calls.values(), key=len)
    lines = [
        sentence if names is latest else f"{sentence[:-1]}: {', '.join(names)}."
        for sentence, names in calls.items()
    ]
    peers = (f.get("published") or {} for f in figures.values())
    versions = next((p["versions"] for p in peers if "versions" in p), None)
    if versions:
        named = ", ".join(f"{n} {v.partition('+')[0]}" for n, v in versions.items())
        lines.append(f"The published converter: {named}.")
    return "\n\n".join(lines)


def section_of(text: str) -> str:
    """Return the section on single ops of a page, or nothing."""
    return text[text.index(HEADING) :] if HEADING in text else ""


def _real_sizes_of(text: str) -> list[str]:
    """Return the part on the calls of `real_sizes.py`, if the page has one."""
    return [text[text.index(REAL) : text.index(COST)].rstrip() + "\n"] if REAL in text else []


def write(figures: dict[str, dict[str, Any]], families: Iterable[Any]) -> None:
    """Replace the section in the page, which it ends."""
    text = PAGE.read_text()
    before = text.removesuffix(section_of(text)).rstrip("\n")
    parts = [HEADING + "\n", INTRODUCTION, _measured(figures) + "\n", results_table(figures)]
    parts += [*_real_sizes_of(text), COST]
    section = "\n".join([*parts, complexity_table(families)])
    PAGE.write_text(f"{before}\n\n{section}")


def write_real_sizes(
    figures: dict[str, dict[str, Any]],
    complaint: Callable[[dict[str, Any]], str],
    explained: dict[str, str],
) -> None:
    """Replace the part on the calls of `real_sizes.py`, which is before the declared costs."""
    text = PAGE.read_text()
    heading = COST.partition("\n")[0]
    before = text[: text.index(REAL if REAL in text else heading)]
    ran = [f for f in figures.values() if "problem" not in f]
    total = max(f["convert"] + f["load"] + f["run"] for f in ran)
    summary = _REAL_TEXT.format(
        count=len(figures), slowest=_time(total), peak=max(f["peak"] for f in ran)
    )
    rows = [
        [name, reason, explained.get(name, "")]
        for name, f in figures.items()
        if (reason := complaint(f))
    ]
    table = _markdown(["call", "result", "reason"], rows)
    verdict = f"{_SOME_SLOW}\n\n{table}" if rows else f"{_NONE_SLOW}\n"
    PAGE.write_text(f"{before}{REAL}\n\n{summary}\n{verdict}\n{text[text.index(heading) :]}")
