"""The static sections of a report: figures, verification, time, weights, hazards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..asset.contents import dtypes, op_counts, pills, signature
from ..asset.markup import Markup, bar, element, joined, table
from ..asset.summary import Summary
from ..formatting import counted, size
from ..rewrites import REWRITES
from .hazards import Hazard
from .times import Times

if TYPE_CHECKING:
    from ..numerics.output_error import OutputError
    from ..verification.verdict import Trial, Verdict

_MODULES = 30  # rows in the table of times; the graph shows all modules
_OPS = 24  # kinds of ops shown
_PROFILED = (
    "Times of modules include their submodules. They were measured under the profiler, which costs "
    "each operation some microseconds; calls of the same graph share its time equally. On Linux "
    "the runtime is an interpreter: times are not representative of device performance."
)


def figures(summary: Summary, verdict: Verdict | None, times: Times | None) -> Markup:
    """Return the key figures of the program."""
    ops = sum(function.ops for function in summary.functions)
    rows = [
        ("ops", f"{ops:,}", ""),
        ("constants", size(summary.weight_bytes), ""),
        ("numbers", *_agreement(verdict)),
    ]
    if summary.composites:
        rows.insert(2, ("composites", f"{sum(summary.composites.values())}", ""))
    if summary.file_bytes is not None:
        rows.insert(1, ("on disk", size(summary.file_bytes), ""))
    if times is not None:
        rows.append(("per call", f"{times.timing.median_ms:.3g} ms", ""))
    return element("dl", *(_figure(*figure) for figure in rows), class_="figures")


def _agreement(verdict: Verdict | None) -> tuple[str, str]:
    if verdict is None:
        return "not checked", "quiet"
    return ("match torch", "good") if verdict.ok else ("differ", "bad")


def _figure(title: str, value: str, class_: str) -> Markup:
    return element("div", element("dt", title), element("dd", value, class_=class_ or None))


def section(name: str, title: str, *parts: str | None) -> Markup:
    """Return a section of the page with its heading, a target of the links at the top."""
    heading = element("h2", title, id=f"{name}-title")
    return element(
        "section", heading, *parts, id=name, class_="part", aria_labelledby=f"{name}-title"
    )


def contents(summary: Summary) -> Markup:
    """Return ports, composites, kinds of ops and kernels."""
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
    """Return constants by dtype; the script of the page adds the single ones."""
    total = f"{size(summary.weight_bytes)} in total, the largest first"
    single = element("div", id="weights-list")
    return section("weights", "Weights", dtypes(summary), element("p", total), single)


def verification(verdict: Verdict) -> Markup:
    """Return the comparison with torch and the errors."""
    headline, *details = str(verdict).splitlines()
    good = "good" if verdict.ok else "bad"
    parts: list[str] = [element("p", headline, class_=f"verdict {good}")]
    if not verdict.ok:
        parts.append(element("pre", joined(*(_line(line) for line in details))))
    if divergence := verdict.divergence:
        search = f"%{divergence.node} = {divergence.op}"
        found = element("button", "Find it in the graph", type="button", data_search=search)
        parts.append(element("p", found))
    if worst := verdict.worst():
        head = ("", "output", "type", "largest error", "relative", "allowed", "same argmax")
        parts.append(_wide(table(head, [_error(e) for e in worst.values()], "errors")))
    parts += [_trials(verdict.trials)]
    if verdict.ok:  # otherwise the details above include them
        notes = [*verdict.notes, *(f"skipped: {left}" for left in verdict.left_out)]
        parts += [element("p", note, class_="quiet") for note in notes]
    return section("verification", "Verification", *parts)


def _line(line: str) -> Markup:
    return joined(line, Markup("\n"))


def _wide(inner: Markup) -> Markup:
    """Wrap a table so that it scrolls on narrow screens and can be focused by keyboard."""
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
    """Return the times of calls and of the slowest modules."""
    timing = times.timing
    runs = sorted(1e3 * s for s in timing.seconds)
    text = (
        f"{timing.median_ms:.3f} ms per call: the median of {len(runs)} calls; the fastest took "
        f"{runs[0]:.3f} ms, the slowest {runs[-1]:.3f} ms."
    )
    modules = times.by_module
    total = modules[0][1] if modules else 1.0
    rows = [
        (_module(module), f"{ms:.3f} ms", f"{ms / total:.1%}", bar(ms / total))
        for module, ms in modules[:_MODULES]
    ]
    more = len(modules) - _MODULES
    left = f"and {counted(more, 'faster module')}, shown in the graph" if more > 0 else None
    return section(
        "time",
        "Time",
        element("p", text),
        table(("module", "time", "share", ""), rows, "times"),
        element("p", left, class_="quiet"),
        element("p", _PROFILED, class_="quiet"),
    )


def _module(path: str) -> Markup:
    if not path:
        return element("span", "whole model")
    return element("button", path, type="button", class_="link", data_module=path)


def hazards(found: list[Hazard]) -> Markup:
    """Return the known problems on devices."""
    if not found:
        return section("hazards", "Hazards", element("p", "No known hazards."))
    return section("hazards", "Hazards", element("ul", *map(_hazard, found), class_="hazards"))


def rewrites(counts: Mapping[str, int]) -> Markup | None:
    """Return what the conversion rewrote for its target, by id."""
    if not counts:
        return None
    summaries = {rewrite.code: rewrite.summary for rewrite in REWRITES}
    rows = [(code, summaries.get(code, ""), f"{n:,}") for code, n in sorted(counts.items())]
    head = element("p", "Constructs that are reported to fail on the target were replaced.")
    return section(
        "rewrites", "Rewrites", head, table(("id", "emitted", "places"), rows, "rewrites")
    )


def _hazard(hazard: Hazard) -> Markup:
    times = "once" if hazard.count == 1 else f"{hazard.count} times"
    kind = "bad" if hazard.severity == "error" else "warn"
    lines = [
        element("p", element("span", hazard.severity, class_=kind), f" {hazard.problem}, {times}"),
        element("p", f"at {hazard.place}", class_="quiet"),
        element("p", f"try {hazard.hint} ({hazard.code})", class_="quiet"),
    ]
    return element("li", *lines)
