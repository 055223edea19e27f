# ruff: noqa: T201  a command prints
"""`python -m tests.sweep softmax --dtypes f32,int64`: judge the samples of database entries."""

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
    most.setdefault("complex64", options.samples)  # for entries without a real dtype
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
    parser.add_argument("--out", help="append every result to this file, as lines of JSON")
    parser.add_argument("--resume", action="store_true", help="skip the entries in --out")
    return parser.parse_args()


def _done(options: Any) -> set[str]:
    if not (options.resume and Path(options.out).exists()):
        return set()
    return {result.entry for result in _read(options.out)}


def _read(path: str) -> list[Result]:
    """Return the results of earlier runs; the latest one of each entry."""
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
    print(f"entries: {passing} of {len(attempted)} attempted pass, {seconds:.0f} CPU seconds")


if __name__ == "__main__":
    sys.exit(main())
