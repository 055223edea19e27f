# ruff: noqa: T201  a command prints
"""`python -m tests.sweep softmax --dtypes f32,int64`: what becomes of an entry's samples."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import entries, page, score
from .out_of_scope import OUT_OF_SCOPE
from .outcome import ATTEMPTED, Kind, Outcome, Verdict
from .pool import Result, sweep


def main() -> int:
    options = _options()
    names = _matching(options.pattern, options.exact)
    most = {d: options.f32 if d == "f32" else options.samples for d in options.dtypes.split(",")}
    most.setdefault("complex64", options.samples)  # for what has no other
    done = _done(options)
    jobs = [
        (name, {d: most[d] for d in entries.dtypes(name) if d in most})
        for name in names
        if name not in OUT_OF_SCOPE and name not in done
    ]
    out = open(options.out, "a") if options.out else None  # noqa: SIM115  closed with the process
    results = []
    for result in sweep([job for job in jobs if job[1]], options.workers):
        results.append(result)
        _show(result, options)
        if out:
            print(json.dumps(asdict(result)), file=out, flush=True)
    _summary(results)
    if options.record:
        every = _read(options.out) if options.out else results
        kept = score.score(every, most)
        score.save(kept)
        page.write()
        return _told(score.complaints(kept))
    return 0 if all(_holds(r) for r in results) else 1


def _told(complaints: list[str]) -> int:
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument(
        "pattern", nargs="*", help="part of an entry's name, or a regex; all if none"
    )
    parser.add_argument("--dtypes", default=",".join(entries.REAL), help="default: %(default)s")
    parser.add_argument("--exact", action="store_true", help="the whole name must match")
    parser.add_argument("--workers", type=int, default=1, help="child processes at a time")
    parser.add_argument("--samples", type=int, help="most of each dtype; all if not given")
    parser.add_argument("--f32", type=int, help="most of float32; all if not given")
    parser.add_argument("--record", action="store_true", help="write docs/ops.md and its score")
    parser.add_argument("--failures", type=int, default=1, help="failing samples shown per outcome")
    parser.add_argument("--quiet", action="store_true", help="show only what did not pass")
    parser.add_argument("--out", help="append every result to this file, as lines of JSON")
    parser.add_argument("--resume", action="store_true", help="leave out what --out holds already")
    return parser.parse_args()


def _done(options: Any) -> set[str]:
    if not (options.resume and Path(options.out).exists()):
        return set()
    return {result.entry for result in _read(options.out)}


def _read(path: str) -> list[Result]:
    """The results of an earlier run; of an entry that was judged twice, the later one."""
    results = {}
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        verdicts = [
            Verdict(
                v["dtype"],
                v["index"],
                Outcome(Kind(v["outcome"]["kind"]), v["outcome"]["detail"]),
                v["sample"],
            )
            for v in row["verdicts"]
        ]
        results[row["entry"]] = Result(row["entry"], verdicts, row["seconds"])
    return list(results.values())


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
    print(f"entries: {passing} of {len(attempted)} attempted pass, {seconds:.0f} s of a processor")


if __name__ == "__main__":
    sys.exit(main())
