"""Compare the ops that this converter emits with those of the published one.

`python -m benchmarks.forms` measures all programs and writes docs/forms.md. `--only TEXT` measures
the programs whose names contain it, shows both histograms, and writes the page with the new rows.
The rows are kept in build/forms.json; a later run says what changed.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from tests.provenance import commit, current

from . import page
from .judge import Row, total
from .measure import DTYPES, measured
from .peer import PUBLISHED
from .program import ROOT
from .programs import PROGRAMS

BUILD = ROOT / "build" / "forms.json"
SHOWN = 8  # more programs than this are listed without histograms


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names or families")
    parser.add_argument("--dtype", choices=DTYPES, help="default: both")
    parser.add_argument("--brief", action="store_true", help="no histograms")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    return parser.parse_args()


def _wanted(given: Any) -> list[tuple[str, str]]:
    parts = [part.lower() for part in given.only]
    names = [
        name
        for name, program in PROGRAMS.items()
        if not parts or any(part in f"{name} {program.family}".lower() for part in parts)
    ]
    dtypes = [given.dtype] if given.dtype else list(DTYPES)
    return [(n, d) for d in dtypes for n in names if d == "f32" or PROGRAMS[n].half]


def main() -> None:
    given = _options()
    wanted = _wanted(given)
    if given.list:
        print("\n".join(sorted({name for name, _ in wanted})))
        return
    shows = bool(given.only) and len(wanted) <= SHOWN and not given.brief
    before, rows = _stored(), []
    for found in measured(wanted, workers=given.workers):
        row = Row(**found, commit=commit())
        rows.append(row)
        print(page.side_by_side(row) if shows else page.line(row), end="", flush=True)
        print(page.change(before.get(row.key), row), flush=True)
        if len(rows) % SHOWN == 0:
            _store(rows)
    _store(rows)
    for dtype in DTYPES:
        print(page.sentence(dtype, total(row for row in rows if row.dtype == dtype)))
    known = _stored()
    every = [known[key] for n in PROGRAMS for d in DTYPES if (key := f"{n} {d}") in known]
    page.write(every, current("timm", "transformers"), PUBLISHED.packages[0])


def _stored() -> dict[str, Row]:
    rows = json.loads(BUILD.read_text()) if BUILD.exists() else []
    return {row.key: row for row in (Row(**one) for one in rows)}


def _store(rows: list[Row]) -> None:
    """Keep these rows, and those of programs that were not measured."""
    kept = _stored() | {row.key: row for row in rows}
    BUILD.parent.mkdir(exist_ok=True)
    BUILD.write_text(json.dumps([vars(row) for row in kept.values()], indent=1) + "\n")


if __name__ == "__main__":
    main()
