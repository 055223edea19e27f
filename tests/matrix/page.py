"""Write docs/compatibility.md from the stored results of `make matrix`."""

from __future__ import annotations

import json
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
    PAGE.write_text(f"{head}{_MARK}\n\n{table(stored)}\n\n{faults()}")


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
