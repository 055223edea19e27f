# ruff: noqa: T201  a command prints
"""`python -m tests.sweep softmax --dtypes f32,int64`: what becomes of an entry's samples."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import entries
from .out_of_scope import OUT_OF_SCOPE
from .outcome import ATTEMPTED, Kind, Verdict
from .pool import Result, sweep


def main() -> int:
    options = _options()
    names = _matching(options.pattern, options.exact)
    wanted = {*options.dtypes.split(","), "complex64"}
    done = _done(options)
    jobs = [
        (name, [dtype for dtype in entries.dtypes(name) if dtype in wanted])
        for name in names
        if name not in OUT_OF_SCOPE and name not in done
    ]
    start = time.monotonic()
    results = []
    out = open(options.out, "a") if options.out else None  # noqa: SIM115  closed with the process
    for result in sweep([job for job in jobs if job[1]], options.workers, options.samples):
        results.append(result)
        _show(result, options)
        if out:
            print(json.dumps(asdict(result)), file=out, flush=True)
    _summary(results, time.monotonic() - start)
    return 0 if all(_holds(r) for r in results) else 1


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument(
        "pattern", nargs="*", help="part of an entry's name, or a regex; all if none"
    )
    parser.add_argument("--dtypes", default=",".join(entries.REAL), help="default: %(default)s")
    parser.add_argument("--exact", action="store_true", help="the whole name must match")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--samples", type=int, help="so many of each dtype; all if not given")
    parser.add_argument("--failures", type=int, default=1, help="failing samples shown per outcome")
    parser.add_argument("--quiet", action="store_true", help="show only what did not pass")
    parser.add_argument("--out", help="append every result to this file, as lines of JSON")
    parser.add_argument("--resume", action="store_true", help="leave out what --out holds already")
    return parser.parse_args()


def _done(options: Any) -> set[str]:
    if not (options.resume and Path(options.out).exists()):
        return set()
    return {json.loads(line)["entry"] for line in Path(options.out).read_text().splitlines()}


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


def _summary(results: list[Result], seconds: float) -> None:
    attempted = [r for r in results if any(v.outcome.kind in ATTEMPTED for v in r.verdicts)]
    print(f"samples: {_counted([v for r in results for v in r.verdicts])}")
    passing = sum(map(_holds, attempted))
    print(f"entries: {passing} of {len(attempted)} attempted pass, {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
