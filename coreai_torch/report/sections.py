"""The parts of a report that need no script: figures, verification, time, hazards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..asset.contents import dtypes, op_counts, pills, signature
from ..asset.markup import Markup, bar, element, joined, table
from ..asset.summary import Summary
from ..formatting import counted, size
from .hazards import Hazard
from .times import Times

if TYPE_CHECKING:
    from ..numerics.output_error import OutputError
    from ..verification.verdict import Trial, Verdict

_MODULES = 30  # of the table of times; the graph shows all
_OPS = 24  # kinds of ops
_PROFILED = (
    "Modules include those within them and were timed under the profiler, which costs each "
    "operation some microseconds; calls of the same graph share its time equally. On Linux the run "
    "time is an interpreter: its times say nothing of a device."
)


def figures(summary: Summary, verdict: Verdict | None, times: Times | None) -> Markup:
    """The whole at a glance."""
    ops = sum(function.ops for function in summary.functions)
    told = [
        ("ops", f"{ops:,}", ""),
        ("constants", size(summary.weight_bytes), ""),
        ("numbers", *_judged(verdict)),
    ]
    if summary.composites:
        told.insert(2, ("composites", f"{sum(summary.composites.values())}", ""))
    if summary.file_bytes is not None:
        told.insert(1, ("on disk", size(summary.file_bytes), ""))
    if times is not None:
        told.append(("a call", f"{times.timing.median_ms:.3g} ms", ""))
    return element("dl", *(_figure(*figure) for figure in told), class_="figures")


def _judged(verdict: Verdict | None) -> tuple[str, str]:
    if verdict is None:
        return "not checked", "quiet"
    return ("equal torch's", "good") if verdict.ok else ("differ", "bad")


def _figure(title: str, value: str, class_: str) -> Markup:
    return element("div", element("dt", title), element("dd", value, class_=class_ or None))


def section(name: str, title: str, *parts: str | None) -> Markup:
    """A part of the page with its heading, to which the list at the top leads."""
    heading = element("h2", title, id=f"{name}-title")
    return element(
        "section", heading, *parts, id=name, class_="part", aria_labelledby=f"{name}-title"
    )


def contents(summary: Summary) -> Markup:
    """Ports, composites, kinds of ops, kernels."""
    counts = op_counts(summary)
    rare = f"and {counted(len(counts) - _OPS, 'more kind')}" if len(counts) > _OPS else None
    parts = [signature(summary)]
    if summary.composites:
        parts += [element("h3", "Composites"), pills(summary.composites.items(), "composites")]
    if summary.kernels:
        kernels = element("ul", *(element("li", element("code", k)) for k in summary.kernels))
        parts += [element("h3", "Metal kernels"), kernels]
    parts += [element("h3", "Ops"), pills(counts[:_OPS], "kinds")]
    return section("contents", "Contents", *parts, element("p", rare, class_="quiet"))


def weights(summary: Summary) -> Markup:
    """Constants by dtype; the single ones are put in by the page's script."""
    whole = f"{size(summary.weight_bytes)} in all, the largest first"
    single = element("div", id="weights-list")
    return section("weights", "Weights", dtypes(summary), element("p", whole), single)


def verification(verdict: Verdict) -> Markup:
    """What was compared with torch, and by how much it differs."""
    headline, *details = str(verdict).splitlines()
    good = "good" if verdict.ok else "bad"
    parts: list[str] = [element("p", headline, class_=f"verdict {good}")]
    if not verdict.ok:
        parts.append(element("pre", joined(*(_line(line) for line in details))))
    if parted := verdict.divergence:
        search = f"%{parted.node} = {parted.op}"
        found = element("button", "Find it in the graph", type="button", data_search=search)
        parts.append(element("p", found))
    if worst := verdict.worst():
        head = ("", "output", "type", "largest error", "relative", "allowed", "same argmax")
        parts.append(_wide(table(head, [_error(e) for e in worst.values()], "errors")))
    parts += [_trials(verdict.trials)]
    if verdict.ok:  # where numbers differ they stand among the details
        notes = [*verdict.notes, *(f"left out: {left}" for left in verdict.left_out)]
        parts += [element("p", note, class_="quiet") for note in notes]
    return section("verification", "Verification", *parts)


def _line(line: str) -> Markup:
    return joined(line, Markup("\n"))


def _wide(inner: Markup) -> Markup:
    """What may be wider than a phone scrolls by itself; it can be reached by keyboard for that."""
    return element("div", inner, class_="wide", tabindex=0, role="region", aria_label="table")


def _mark(ok: bool) -> Markup:
    class_, text = ("good", "✓ same") if ok else ("bad", "✗ differs")
    return element("span", text, class_=class_)


def _error(error: OutputError) -> tuple[str, ...]:
    agreed = error.argmax_agreement
    sizes = ", ".join(str(size_) for size_ in error.shape)
    return (
        _mark(error.ok),
        element("code", error.name),
        element("code", f"{error.dtype}[{sizes}]"),
        error.problem or _small(error.max_abs),
        _small(error.max_rel),
        f"{error.tolerance:.2e}" if error.tolerance else "exact",
        "" if agreed is None else f"{agreed:.0%}",
    )


def _small(number: float) -> str:
    return f"{number:.2e}" if number else "0"


def _trials(trials: tuple[Trial, ...]) -> Markup:
    rows = [
        (_mark(t.ok), t.inputs, "after" if t.optimized else "before", str(t.step + 1))
        for t in trials
    ]
    shown = table(("", "inputs", "optimize()", "call"), rows, "trials")
    return element("details", element("summary", counted(len(rows), "call")), _wide(shown))


def time(times: Times) -> Markup:
    """Whole calls, and the modules that took the time."""
    timing = times.timing
    runs = sorted(1e3 * s for s in timing.seconds)
    told = (
        f"{timing.median_ms:.3f} ms a call: the median of {len(runs)}, of which the quickest took "
        f"{runs[0]:.3f} ms and the slowest {runs[-1]:.3f} ms."
    )
    modules = times.by_module
    whole = modules[0][1] if modules else 1.0
    rows = [
        (_module(module), f"{ms:.3f} ms", f"{ms / whole:.1%}", bar(ms / whole))
        for module, ms in modules[:_MODULES]
    ]
    more = len(modules) - _MODULES
    left = f"and {counted(more, 'module')} that took less, in the graph" if more > 0 else None
    return section(
        "time",
        "Time",
        element("p", told),
        table(("module", "time", "share", ""), rows, "times"),
        element("p", left, class_="quiet"),
        element("p", _PROFILED, class_="quiet"),
    )


def _module(path: str) -> Markup:
    if not path:
        return element("span", "whole model")
    return element("button", path, type="button", class_="link", data_module=path)


def hazards(found: list[Hazard]) -> Markup:
    """What is known to go wrong on devices."""
    if not found:
        return section("hazards", "Hazards", element("p", "None that are known."))
    return section("hazards", "Hazards", element("ul", *map(_hazard, found), class_="hazards"))


def _hazard(hazard: Hazard) -> Markup:
    times = "once" if hazard.count == 1 else f"{hazard.count} times"
    kind = "bad" if hazard.severity == "error" else "warn"
    lines = [
        element("p", element("span", hazard.severity, class_=kind), f" {hazard.problem}, {times}"),
        element("p", f"at {hazard.place}", class_="quiet"),
        element("p", f"try {hazard.way_out} ({hazard.code})", class_="quiet"),
    ]
    return element("li", *lines)
