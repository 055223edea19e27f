# ruff: noqa: T201  a command prints
"""`python -m tests.mutants --workers 16`: sabotage every lowering, and count what `verify` finds.

With `--honest`, judge the unmutated models of the zoo instead. Results are appended to a file of
JSON lines after each unit; a second run continues where the first one ended. `--record` writes the
summary to tests/mutants and the table to docs/verify.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from . import page, pool

MEASURED = "measured"  # the line with commit and versions


def main() -> int:
    options = _options()
    every = _names(options)
    names = [n for n in every[:: options.every] if re.search(options.only, n)]
    known = _read(options.out)
    left = [] if options.collect else [n for n in names if n not in known]
    print(f"{len(names)} units, {len(names) - len(left)} of them already done", flush=True)
    began = time.monotonic()
    mode = "honest" if options.honest else "mutants"
    with options.out.open("a") as file:
        if MEASURED not in known:
            known[MEASURED] = page.measured(options.commit)
            print(json.dumps([MEASURED, known[MEASURED]]), file=file, flush=True)
        for count, (name, outcomes) in enumerate(pool.run_all(left, options.workers, mode), 1):
            known[name] = outcomes
            print(json.dumps([name, outcomes]), file=file, flush=True)
            _show(name, outcomes, options, f"{count}/{len(left)}")
            if options.seconds and time.monotonic() - began > options.seconds:
                print("the time limit was reached; run again to continue")
                break
    rows = [o for name in names for o in known.get(name, [])]
    summary = page.summary(rows, options.honest, known[MEASURED])
    summary["units"] = {"run": sum(n in known for n in names), "all": len(every)}
    if not options.honest:
        summary["quick"]["units"] = summary["units"]
    print(page.text(summary))
    if options.record:
        page.record(summary, options.honest)
    sys.stdout.flush()
    os._exit(0 if page.is_good(summary) else 1)  # threads of the pool may still wait


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--honest", action="store_true", help="judge unmutated models of the zoo")
    parser.add_argument("--only", default="", help="run the units that match this expression")
    parser.add_argument("--models-only", action="store_true", help="leave out the cases")
    parser.add_argument("--every", type=int, default=1, help="run one unit in this many")
    parser.add_argument("--out", type=Path, default=None, help="the file of JSON lines")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this time")
    parser.add_argument("--commit", default="", help="the commit to record, outside a checkout")
    parser.add_argument("--collect", action="store_true", help="run nothing; sum up the file")
    parser.add_argument("--record", action="store_true", help="write the score and the page")
    parser.add_argument("--verbose", action="store_true", help="show every unit")
    options = parser.parse_args()
    if options.out is None:
        options.out = Path("build") / ("honest.jsonl" if options.honest else "mutants.jsonl")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    return options


def _names(options: Any) -> list[str]:
    warnings.simplefilter("ignore")
    from . import honest, programs

    units = honest.models() if options.honest else programs.units()
    return [u.name for u in units if not options.models_only or getattr(u, "model", "")]


def _read(path: Path) -> dict[str, Any]:
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(json.loads(line) for line in lines)


def _show(name: str, outcomes: list[dict[str, Any]], options: Any, progress: str) -> None:
    counts = Counter(o["outcome"] for o in outcomes)
    if options.verbose:
        print(progress, name, dict(counts), flush=True)
    for one in outcomes:
        if one["outcome"] in page.BAD:
            place = f"{one['op']} {one['node']}".strip()
            print(
                f"{one['outcome']}: {name}: {place} {one['kind']}: {one['detail'][:300]}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
