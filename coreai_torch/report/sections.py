"""The static sections of a report: figures, verification, time, weights, lint, rewrites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..asset.contents import dtypes, op_counts, pills, signature
from ..asset.markup import Markup, bar, element, joined, table
from ..asset.summary import Summary
from ..formatting import counted, duration, quantity, shares, size
from ..targets.rewrites import REWRITES
from .costs import Costs
from .times import Part, Times

if TYPE_CHECKING:
    from ..numerics.output_error import OutputError
    from ..targets.lint import Finding
    from ..verification.verdict import Trial, Verdict
import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

_LIBRARIES = ("coreai-torch", "coreai-core", "torch")


@dataclass(frozen=True)
class Origin:
    """The date of a page, and the versions of the libraries that read the program."""

    date: datetime
    versions: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        """Return the date and each version as text."""
        date = f"{self.date:%-d %B %Y, %H:%M} UTC"
        return [date, *(f"{name} {number}" for name, number in self.versions)]


def origin() -> Origin:
    """Return the present; `SOURCE_DATE_EPOCH` sets the date for reproducible builds."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    date = datetime.fromtimestamp(int(given), UTC) if given.isdigit() else datetime.now(UTC)
    versions = [(name, _version(name)) for name in _LIBRARIES]
    system = platform.system().replace("Darwin", "macOS")
    versions += [("Python", platform.python_version()), (system, platform.machine())]
    return Origin(date, tuple(versions))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(version unknown)"


_KINDS, _MODULES = 12, 24  # rows in the tables of times; the flame graph shows all modules
_OPS = 24  # kinds of ops shown
_PROFILED = (
    "The profiler costs each op some microseconds; calls of the same graph share its time equally. "
    "On Linux the runtime is an interpreter: times are not representative of device performance."
)


class Section(NamedTuple):
    """A part of the page, with the name and title of its link at the top."""

    name: str
    title: str
    body: Markup


def figures(summary: Summary, costs: Costs, verdict: Verdict | None, times: Times | None) -> Markup:
    """Return the key figures of the program."""
    entry = times.timing.function if times is not None else summary.functions[0].name
    ops = {function.name: function.ops for function in summary.functions}
    rows = [
        ("ops", f"{sum(ops.values()):,}", ""),
        ("parameters", quantity(costs.total_parameters), ""),
        ("multiply-adds", quantity(costs.multiply_adds(entry)), ""),
        ("constants", size(summary.weight_bytes), ""),
        ("on disk", "" if summary.file_bytes is None else size(summary.file_bytes), ""),
        ("composites", f"{sum(summary.composites.values()) or ''}", ""),
        ("numbers", *_agreement(verdict)),
    ]
    if times is not None:
        rows.append((f"per call of {entry}", duration(times.timing.median_ms / 1e3), ""))
    shown = (_figure(*figure) for figure in rows if figure[1])
    return element("dl", *shown, class_="figures")


def made(origin: Origin) -> Markup:
    """Return the date and the versions as one line."""
    lines = origin.lines()
    return element("p", *(element("span", line) for line in lines), class_="origin quiet")


def _agreement(verdict: Verdict | None) -> tuple[str, str]:
    if verdict is None:
        return "not checked", "quiet"
    return ("match torch", "good") if verdict.ok else ("differ", "bad")


def _figure(title: str, value: str, class_: str) -> Markup:
    return element("div", element("dt", title), element("dd", value, class_=class_ or None))


def section(name: str, title: str, *parts: str | None) -> Section:
    """Return a section of the page with its heading, a target of the links at the top."""
    heading = element("h2", title, id=f"{name}-title")
    body = element(
        "section", heading, *parts, id=name, class_="part", aria_labelledby=f"{name}-title"
    )
    return Section(name, title, body)


def contents(summary: Summary) -> Section:
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


def weights(summary: Summary) -> Section:
    """Return constants by dtype; the script of the page adds the single ones."""
    total = f"{size(summary.weight_bytes)} in total, the largest first"
    single = element("div", id="weights-list")
    return section("weights", "Weights", dtypes(summary), element("p", total), single)


def verification(verdict: Verdict) -> Section:
    """Return the comparison with torch and the errors."""
    headline, *details = str(verdict).splitlines()
    good = "good" if verdict.ok else "bad"
    parts: list[str] = [element("p", headline, class_=f"verdict {good}")]
    if not verdict.ok:
        parts.append(element("pre", joined(*(_line(line) for line in details))))
    if divergence := verdict.divergence:
        search = f"%{divergence.node} ="
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


def time(times: Times) -> Section:
    """Return the times of calls, of kinds of ops and of modules."""
    timing = times.timing
    runs = sorted(timing.seconds)
    text = joined(
        "Timed entry point: ",
        element("code", timing.function),
        f". A call takes {duration(timing.median_ms / 1e3)}, the median of "
        f"{counted(len(runs), 'call')}; the fastest took {duration(runs[0])}, the slowest "
        f"{duration(runs[-1])}.",
    )
    return section(
        "time",
        "Time",
        element("p", text),
        element("h3", "By kind of op"),
        _parts("kind of op", times.by_kind(_KINDS), _kind),
        element("h3", "By module"),
        _parts("module", times.by_module(_MODULES), _module),
        element("p", f"All ops take {duration(times.total / 1e3)} under the profiler. {_PROFILED}")
        if times.total
        else None,
    )


def _parts(title: str, parts: Sequence[Part], named: Callable[[Part], Markup]) -> Markup:
    percent = shares([part.milliseconds for part in parts])
    most = max((part.milliseconds for part in parts), default=0.0) or 1.0
    rows = [
        (
            named(part),
            f"{part.ops:,}",
            duration(part.milliseconds / 1e3),
            share,
            bar(part.milliseconds / most),
        )
        for part, share in zip(parts, percent, strict=True)
    ]
    return table((title, "ops", "time", "share", ""), rows, "times")


def _kind(part: Part) -> Markup:
    if part.name.endswith("other kinds"):
        return element("span", part.name)
    return element("button", part.name, type="button", class_="link", data_search=part.name)


def _module(part: Part) -> Markup:
    if not part.module:
        return element("span", part.name or "the model")
    return element("button", part.name, type="button", class_="link", data_module=part.module)


def lint(found: Sequence[Finding]) -> Section:
    """Return the findings of lint, errors first."""
    if not found:
        return section("hazards", "Lint", element("p", "Lint found nothing."))
    counts = Counter(finding.severity for finding in found)
    total = ", ".join(counted(count, severity) for severity, count in counts.items())
    text = total.replace("infos", "notes").replace("info", "note")
    listed = element("ul", *map(_finding, found), class_="hazards")
    return section("hazards", "Lint", element("p", text, class_="quiet"), listed)


def _finding(finding: Finding) -> Markup:
    times = "once" if finding.count == 1 else f"{finding.count} times"
    kind = {"error": "bad", "warning": "warn"}.get(finding.severity, "note")
    severity = "note" if finding.severity == "info" else finding.severity
    lines = [
        element("p", element("span", severity, class_=kind), f" {finding.problem}, {times}"),
        element("p", f"at {finding.place}", class_="quiet"),
        element("p", f"try {finding.hint} ({finding.code})", class_="quiet"),
    ]
    return element("li", *lines)


def rewrites(counts: Mapping[str, int]) -> Section:
    """Return what the conversion rewrote for its target, by id."""
    summaries = {rewrite.code: rewrite.summary for rewrite in REWRITES}
    rows = [(code, summaries.get(code, ""), f"{n:,}") for code, n in sorted(counts.items())]
    head = element("p", "Constructs that are reported to fail on the target were replaced.")
    return section(
        "rewrites", "Rewrites", head, table(("id", "emitted", "places"), rows, "rewrites")
    )
