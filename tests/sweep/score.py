"""Compute, store and check the score of a sweep, docs/ops-score.json."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from .. import provenance
from . import entries
from .known_refusals import KNOWN_REFUSALS
from .out_of_scope import OUT_OF_SCOPE
from .outcome import ATTEMPTED, DEFECTS, Kind
from .plan import Result
from .set_aside import SET_ASIDE

DOCS = Path(__file__).parents[2] / "docs"
SCORE, PAGE = DOCS / "ops-score.json", DOCS / "ops.md"
LONGEST_REASON = 200


def score(results: list[Result], most: dict[str, int | None]) -> dict[str, Any]:
    """Return the score: commit, versions, totals, and each entry's counts by dtype and outcome."""
    by_entry = {r.entry: _row(r) for r in sorted(results, key=lambda r: r.entry)}
    for entry in set(entries.entries()) - set(OUT_OF_SCOPE):
        if not entries.dtypes(entry):  # supports only 8-bit dtypes
            by_entry[entry] = {"samples": {}}
    left = sorted(set(entries.entries()) - set(by_entry) - set(OUT_OF_SCOPE))
    return {
        "measured": provenance.current(),
        "samples of each dtype at most": most,
        "seconds of a processor": round(sum(r.seconds for r in results)),
        "entries in the database": len(entries.entries()),
        "total": _total(by_entry, entries.DTYPES),
        "by dtype": {d: _total(by_entry, (d,)) for d in entries.DTYPES},
        "out of scope": dict(sorted(OUT_OF_SCOPE.items())),
        "not judged in this run": left,
        "entries": by_entry,
    }


def holds(row: dict[str, Any], dtypes: Any = tuple(entries.DTYPES)) -> bool:
    """Return whether every attempted sample passed."""
    counts = _counts(row, dtypes)
    return not any(counts[k] for k in ATTEMPTED if k is not Kind.PASS)


def was_attempted(row: dict[str, Any], dtypes: Any = tuple(entries.DTYPES)) -> bool:
    counts = _counts(row, dtypes)
    return any(counts[k] for k in ATTEMPTED)


def complaints(kept: dict[str, Any]) -> list[str]:
    """Return defects, rejections without a listed reason, and unlisted failures of torch."""
    found = []
    for entry, row in kept["entries"].items():
        known = KNOWN_REFUSALS.get(entry)
        for dtype, counts in row["samples"].items():
            bad = [f"{counts[k]} {k}" for k in DEFECTS if counts.get(k)]
            refused = counts.get(Kind.REFUSED, 0)
            if refused and (known is None or dtype not in known.dtypes):
                bad.append(f"{refused} refused, not listed with a reason")
            failed = counts.get(Kind.EXPORT_FAILED, 0)
            if failed > set_aside(entry, dtype):
                bad.append(f"{failed} {Kind.EXPORT_FAILED}, not listed with a reason")
            found += [f"{entry} {dtype}: {', '.join(bad)}: {row.get('why', '')}"] if bad else []
    return found


def set_aside(entry: str, dtype: str) -> int:
    """Return how many samples are listed as failures of torch."""
    row = SET_ASIDE.get(entry)
    return row.samples if row and dtype in row.dtypes else 0


def load() -> dict[str, Any]:
    return dict(json.loads(SCORE.read_text()))


def save(kept: dict[str, Any]) -> None:
    """Write one entry per line, so that a diff of the file is readable."""
    head = {key: value for key, value in kept.items() if key != "entries"}
    lines = [f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in kept["entries"].items()]
    text = json.dumps(head, indent=2).removesuffix("\n}")
    SCORE.write_text(text + ',\n  "entries": {\n' + ",\n".join(lines) + "\n  }\n}\n")


def _row(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {"samples": {}}
    for verdict in result.verdicts:
        counts = row["samples"].setdefault(verdict.dtype, {})
        counts[verdict.outcome.kind] = counts.get(verdict.outcome.kind, 0) + 1
    failing = [v for v in result.verdicts if v.outcome.kind in ATTEMPTED[1:]]
    aside = [v for v in result.verdicts if v.outcome.kind not in ATTEMPTED]
    for verdict in [*failing, *aside][:1]:
        row["why"] = verdict.outcome.detail[:LONGEST_REASON]
    return row


def _counts(row: dict[str, Any], dtypes: Any) -> Counter[str]:
    return sum((Counter(row["samples"].get(d, {})) for d in dtypes), Counter())


def _total(by_entry: dict[str, Any], dtypes: Any) -> dict[str, Any]:
    attempted = [row for row in by_entry.values() if was_attempted(row, dtypes)]
    samples = sum((_counts(row, dtypes) for row in by_entry.values()), Counter())
    return {
        "entries attempted": len(attempted),
        "entries that pass on all samples": sum(holds(row, dtypes) for row in attempted),
        "samples": {kind: samples[kind] for kind in Kind if samples[kind]},
    }
