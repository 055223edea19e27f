# ruff: noqa: T201  a command prints
"""`python -m tests.rewrites.sweep`: all op cases and models of the zoo with all rewrites.

Each batch of cases and each model runs in a forked child: a crash affects only that unit, and a
batch that crashed runs again case by case. Results are lines of JSON; a second run with the same
file skips the cases and models that passed. `--record` writes score.json and docs/targets.md from
the file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests import forked

from . import units
from .units import Outcome, Unit


def main() -> int:
    options = _options()
    os.environ["COREAI_TORCH_OPTIMIZE"] = "0"  # cases compare programs before and after optimize()
    measured = _measured(options.commit)
    done = _passed(options.out)
    chosen = [u for u in units.all_units(tuple(options.kinds)) if _selected(u, options)]
    waiting = [rest for unit in chosen if (rest := unit.without(done)) is not None]
    print(f"{len(waiting)} of {len(chosen)} units to run", flush=True)
    forked.preload(*["transformers.modeling_utils"] * ("model" in options.kinds))
    until = time.monotonic() + options.seconds
    with options.out.open("a") as file:
        units.ONLY += options.only
        for ended in forked.run(
            units.run,
            waiting,
            options.workers,
            until=until,
            patience=options.patience,
            instead=Unit.after_crash,
        ):
            outcome = _outcome(*ended)
            print(json.dumps({**vars(outcome), "measured": measured}), file=file, flush=True)
            for name, message in outcome.failures.items():
                print(f"{outcome.kind} {name}: {message[:500]}", flush=True)
    if options.record and not options.pattern and options.shard == "0/1":
        from . import score

        score.record(options.out)
    return 1 if any(row["failures"] for row in read(options.out)) else 0


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.rewrites.sweep", description=__doc__)
    parser.add_argument("pattern", nargs="*", help="part of the name of a case or model")
    parser.add_argument("--kinds", nargs="+", default=["static", "dynamic", "model"])
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="child processes")
    parser.add_argument("--out", type=Path, default=Path("rewrites.jsonl"), help="lines of JSON")
    parser.add_argument("--shard", default="0/1", help="run each N-th unit: 0/4, 1/4, ...")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no unit after this time")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds for one unit")
    parser.add_argument("--only", nargs="*", default=[], help="ids of rewrites; default: all")
    parser.add_argument("--commit", help="the commit to record, if this folder has no git history")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write score.json and the page, if all units were selected",
    )
    return parser.parse_args()


def _selected(unit: Unit, options: Any) -> bool:
    """Return whether a unit is in the shard, which depends on its name only, and matches."""
    names = [unit.name, *(member[0] for member in unit.members)]
    if options.pattern and not any(p in name for p in options.pattern for name in names):
        return False
    index, count = map(int, options.shard.split("/"))
    return sum(unit.key.encode()) % count == index


def _measured(commit: str | None) -> dict[str, str]:
    import provenance

    found = provenance.current("transformers")
    return {**found, "commit": commit} if commit else found


def read(file: Path) -> list[dict[str, Any]]:
    """Return the rows, each case and model only with its latest verdict.

    The batches of cases change between commits, so a case may be in two rows of other names.
    """
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    seen: set[tuple[str, str]] = set()
    latest = []
    for row in reversed(rows):
        new = [name for name in row["verdicts"] if (row["kind"], name) not in seen]
        seen.update((row["kind"], name) for name in new)
        if new:
            kept = {key: _only(new, row[key]) for key in ("verdicts", "failures")}
            latest.append({**row, **kept})
    return latest[::-1]


def _only(names: list[str], found: dict[str, str]) -> dict[str, str]:
    return {name: found[name] for name in names if name in found}


def _passed(file: Path) -> set[str]:
    return {
        f"{row['kind']} {name}"
        for row in read(file)
        for name in row["verdicts"].keys() - row["failures"]
    }


def _outcome(unit: Unit, result: dict[str, Any] | None, failure: str) -> Outcome:
    """Return the outcome; a crash or a timeout fails the whole unit."""
    if result is not None:
        return Outcome(**result)
    names = [member[0] for member in unit.members] or [unit.name]
    failure = f"{failure} with and without rewrites" if unit.crashed else failure
    verdicts = dict.fromkeys(names, "failed")
    return Outcome(unit.kind, unit.name, verdicts, dict.fromkeys(names, failure))


if __name__ == "__main__":
    sys.exit(main())
