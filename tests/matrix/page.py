"""Write docs/compatibility.md from the stored results of `make matrix`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.version_faults import ROWS

from .environment import ROOT

RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "compatibility.md"
_MARK = "<!-- made by `make matrix`; do not edit below -->"


def write_page(stored: Mapping[str, Any]) -> None:
    """Replace the generated part of the page."""
    head = PAGE.read_text().partition(_MARK)[0]
    PAGE.write_text(f"{head}{_MARK}\n\n{table(stored)}\n\n{failures(stored)}\n\n{faults()}")


def table(stored: Mapping[str, Any]) -> str:
    """Return one row per combination of versions."""
    rows = sorted(stored.values(), key=lambda row: (_release(row["torch"]), row["python"]))
    parts = list(dict.fromkeys(r["part"] for row in rows for r in row["results"]))
    lines = [
        f"| torch | Python | coreai-core | {' | '.join(parts)} | commit |",
        f"|---|---|---|{'---|' * len(parts)}---|",
    ]
    for row in rows:
        by_part = {r["part"]: r for r in row["results"]}
        cells = [_cell(by_part.get(part)) for part in parts]
        versions = f"| {row['torch']} | {row['python']} | {row['core']} |"
        lines.append(f"{versions} {' | '.join(cells)} | `{row['commit']}` |")
    return "\n".join(lines)


# Why a stored result has failures; a test that fails for another reason is listed without one.
_REASONS = {
    "test_optional_libraries": "a test module imported transformers while it was collected, or a "
    "plugin of that machine's pytest failed; the module imports it lazily now",
    "inside_branches": "torch 2.12 and older warn about torch.cond inside torch.export, and tests "
    "turn warnings into errors; this one is expected now",
    "bucketize|_linalg_solve_ex": "the faults of torch below: the rows ended at 2.9 then",
    "test_dynamic": "the fault of torch 2.9 below: the row did not include these tests then",
}


def failures(stored: Mapping[str, Any]) -> str:
    """Return the tests that failed, with the reason."""
    lines = ["## Failures", "", "| torch | test | reason |", "|---|---|---|"]
    for row in stored.values():
        for test in (name for r in row["results"] for name in r["failures"]):
            known = (reason for key, reason in _REASONS.items() if re.search(key, test))
            lines.append(f"| {row['torch']} | `{test.partition('@')[0]}` | {next(known, '')} |")
    return "\n".join(lines)


def _cell(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "not run"
    failed = f", **{result['failed']} failed**" if result["failed"] else ""
    return f"{result['passed']} passed{failed}, {result['skipped']} skipped"


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def faults() -> str:
    """Return the tests that are skipped because a version of torch is at fault."""
    lines = ["## Faults of torch itself", "", "| torch | tests | reason |", "|---|---|---|"]
    lines += [f"| {row.versions} | `{row.pattern}` | {row.reason} |" for row in ROWS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_page(json.loads(RESULTS.read_text()))
