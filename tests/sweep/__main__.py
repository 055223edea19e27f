# ruff: noqa: T201  a command prints
"""`python -m tests.sweep softmax --dtypes f32,int64`: judge the samples of database entries.

The entries are tasks of a fleet run: an interrupted run continues, and an entry is not judged twice
at the same content of converter, tests and libraries. `coreai-torch fleet report build/sweep` shows
the run.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from . import entries, page, score
from .out_of_scope import OUT_OF_SCOPE
from .outcome import ATTEMPTED, Kind, Verdict
from .plan import ROOT, Job, Result, judged_by_fleet


def main() -> int:
    options = _options()
    names = _matching(options.pattern, options.exact)
    most = {d: options.f32 if d == "f32" else options.samples for d in options.dtypes.split(",")}
    most.setdefault("complex64", options.samples)  # for entries without a real dtype
    jobs = [
        Job(name, {d: most[d] for d in entries.dtypes(name) if d in most})
        for name in names
        if name not in OUT_OF_SCOPE
    ]
    jobs = [job for job in jobs if job.most]
    results = judged_by_fleet(
        jobs, options.results, options.workers, lambda result: _show(result, options)
    )
    _summary(results)
    if options.record:
        kept = score.score(results, most)
        score.save(kept)
        page.write()
        return _report(score.complaints(kept))
    return 0 if all(_holds(r) for r in results) else 1


def _report(complaints: list[str]) -> int:
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument(
        "pattern", nargs="*", help="part of the name of an entry, or a regex; default: all entries"
    )
    parser.add_argument("--dtypes", default=",".join(entries.REAL), help="default: %(default)s")
    parser.add_argument("--exact", action="store_true", help="the whole name must match")
    parser.add_argument("--workers", type=int, default=1, help="number of child processes")
    parser.add_argument("--samples", type=int, help="samples of each dtype at most; default: all")
    parser.add_argument("--f32", type=int, help="largest number of float32 samples; default: all")
    parser.add_argument("--record", action="store_true", help="write the score and docs/ops.md")
    parser.add_argument("--failures", type=int, default=1, help="failing samples shown per outcome")
    parser.add_argument("--quiet", action="store_true", help="show only entries that did not pass")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "build" / "sweep", help="folder of the fleet run"
    )
    return parser.parse_args()


def _matching(patterns: list[str], exact: bool) -> list[str]:
    match = re.fullmatch if exact else re.search
    every = entries.entries()
    found = [n for n in every if not patterns or any(match(p, n) for p in patterns)]
    if not found:
        sys.exit(f"no entry of op_db matches {patterns}")
    return found


def _holds(result: Result) -> bool:
    kinds = {v.outcome.kind for v in result.verdicts}
    return not kinds & (set(ATTEMPTED) - {Kind.PASS})


def _show(result: Result, options: Any) -> None:
    if options.quiet and _holds(result):
        return
    for dtype in dict.fromkeys(v.dtype for v in result.verdicts):
        print(f"{result.entry} {dtype}: {_counted(result.of(dtype))}")
    for kind in Kind:
        if kind is Kind.PASS:
            continue
        failing = [v for v in result.verdicts if v.outcome.kind is kind]
        for verdict in failing[: options.failures]:
            print(f"    {kind} {verdict.dtype} #{verdict.index} {verdict.outcome.detail}")
            print(f"        {verdict.sample}")
    sys.stdout.flush()


def _counted(verdicts: list[Verdict]) -> str:
    counts = Counter(v.outcome.kind for v in verdicts)
    return ", ".join(f"{counts[kind]} {kind}" for kind in Kind if counts[kind])


def _summary(results: list[Result]) -> None:
    attempted = [r for r in results if any(v.outcome.kind in ATTEMPTED for v in r.verdicts)]
    print(f"samples: {_counted([v for r in results for v in r.verdicts])}")
    passing, seconds = sum(map(_holds, attempted)), sum(r.seconds for r in results)
    print(f"entries: {passing} of {len(attempted)} attempted pass, {seconds:.0f} CPU seconds")


if __name__ == "__main__":
    sys.exit(main())
