"""The results of the clients, stored as JSON and shown in docs/migration.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import provenance

HERE = Path(__file__).parent
SCORE, DOCS = HERE / "score.json", HERE.parents[1] / "docs" / "migration.md"
BEGIN, END = "<!-- clients: begin -->", "<!-- clients: end -->"


def record(results: dict[str, dict[str, Any]]) -> None:
    """Store the results of the clients that ran and write the page."""
    stored = json.loads(SCORE.read_text()) if SCORE.exists() else {}
    SCORE.write_text(json.dumps({**stored, **results}, indent=1) + "\n")
    write()


def write() -> None:
    """Write the tables into docs/migration.md from the stored results."""
    before, _, rest = DOCS.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text(f"{before}{BEGIN}\n\n{section()}\n\n{END}{after}")


def section() -> str:
    """Return the tables of results."""
    stored = json.loads(SCORE.read_text())
    lines = ["| program | flow | its own tests |", "|---|---|---|"]
    lines += [_client(name, found) for name, found in stored.items()]
    for name, found in stored.items():
        lines += ["", f"{name}: {_sentence(found['measured'])}"]
    rows = [row for found in stored.values() for row in found["flow"]["rows"] if "asset" in row]
    lines += ["", "Each path of coreai-opt, with the bytes of its packed weights, the bytes of"]
    lines[-1] += " the asset, and the largest difference from the compressed model in PyTorch:"
    lines += ["", "| path | packed weights | asset | difference |", "|---|---|---|---|"]
    return "\n".join(lines + [_row(row) for row in rows])


def _client(name: str, found: dict[str, Any]) -> str:
    own = found.get("own tests")
    note = f", {own['conditions']} run with a condition" if own and own["conditions"] else ""
    cells = [f"{name} {found['measured'][name]}", _counts(found["flow"])]
    return f"| {' | '.join([*cells, _counts(own) + note if own else ''])} |"


def _counts(found: dict[str, Any]) -> str:
    total = sum(found[outcome] for outcome in ("passed", "failed", "skipped"))
    skipped = f", {found['skipped']} are skipped" if found["skipped"] else ""
    return f"{found['passed']} of {total} pass{skipped}"


def _sentence(measured: dict[str, str]) -> str:
    text = provenance.describe(measured)
    return text[0].lower() + text[1:]


def _row(row: dict[str, Any]) -> str:
    difference = f"{row['error']:.1e}" if "error" in row else f"loss {row['loss']:.2g}"
    return f"| {row['path']} | {row['weights']:,.0f} | {row['asset']:,} | {difference} |"
