# ruff: noqa: T201  a command prints
"""`python -m tests.rewrites.sweep`: all op cases and models of the zoo with all rewrites.

Each batch of cases and each model runs in a forked child: a crash affects only that unit, and a
batch that crashed runs again case by case. Results are lines of JSON; a second run with the same
file skips the units that passed. `--record` writes score.json and docs/targets.md from the file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from . import units
from .units import Outcome, Unit

_FORK = multiprocessing.get_context("fork")
_LARGEST_BATCH_SECONDS = 300.0


def main() -> int:
    options = _options()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["COREAI_TORCH_OPTIMIZE"] = "0"  # cases compare programs before and after optimize()
    measured = _measured(options.commit)
    done = _passed(options.out)
    chosen = [u for u in units.all_units(tuple(options.kinds)) if _selected(u, options)]
    waiting = [unit for unit in chosen if unit.key not in done]
    print(f"{len(waiting)} of {len(chosen)} units to run", flush=True)
    _preload(tuple(options.kinds))
    with options.out.open("a") as file:
        for outcome in _run_all(waiting, options.workers, options.seconds):
            print(json.dumps({**vars(outcome), "measured": measured}), file=file, flush=True)
            for name, message in outcome.failures.items():
                print(f"{outcome.kind} {name}: {message[:500]}", flush=True)
    if options.record and not options.pattern and options.shard == "0/1":
        from . import score

        score.record(options.out)
    return 1 if any(row["failures"] for row in read(options.out).values()) else 0


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.rewrites.sweep", description=__doc__)
    parser.add_argument("pattern", nargs="*", help="part of the name of a case or model")
    parser.add_argument("--kinds", nargs="+", default=["static", "dynamic", "model"])
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="child processes")
    parser.add_argument("--out", type=Path, default=Path("rewrites.jsonl"), help="lines of JSON")
    parser.add_argument("--shard", default="0/1", help="run each N-th unit: 0/4, 1/4, ...")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no unit after this time")
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


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Return the latest row of each unit."""
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {f"{row['kind']} {row['name']}": row for row in rows}


def _passed(file: Path) -> set[str]:
    return {key for key, row in read(file).items() if not row["failures"]}


def _preload(kinds: tuple[str, ...]) -> None:
    """Import what the units import, before they are forked."""
    import lean_torch
    import torch

    from tests.sweep.worker import warm_up

    lean_torch.make_lean()
    torch.set_num_threads(1)
    warm_up()
    if "model" in kinds:
        import transformers.modeling_utils  # noqa: F401


class _Child:
    """One unit in a forked process."""

    def __init__(self, unit: Unit) -> None:
        self.unit, self.end = unit, time.monotonic() + _LARGEST_BATCH_SECONDS
        self.pipe, theirs = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=_work, args=(unit, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def outcome(self) -> Outcome:
        """Return the outcome; a crash or a timeout fails the whole unit."""
        try:
            return Outcome(**self.pipe.recv()) if self.pipe.poll() else self._failed("timeout")
        except EOFError:
            self._process.join(10)
            return self._failed(f"crash, exit code {self._process.exitcode}")
        finally:
            self._process.kill()
            self._process.join()
            self.pipe.close()

    def _failed(self, message: str) -> Outcome:
        names = [member[0] for member in self.unit.members] or [self.unit.name]
        failures = dict.fromkeys(names, message)
        verdicts = dict.fromkeys(names, "failed")
        return Outcome(self.unit.kind, self.unit.name, verdicts, failures)


def _work(unit: Unit, pipe: Any) -> None:
    log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    pipe.send(units.run(unit))
    pipe.close()
    os._exit(0)


def _run_all(waiting: list[Unit], workers: int, seconds: float) -> Iterator[Outcome]:
    """Yield outcomes as they are ready."""
    queue, running = deque(waiting), []
    end = time.monotonic() + seconds
    while queue or running:
        while queue and len(running) < workers and time.monotonic() < end:
            running.append(_Child(queue.popleft()))
        if not running:
            print(f"{len(queue)} units are left", flush=True)
            return
        ready = set(wait([child.pipe for child in running], timeout=1.0))
        for child in list(running):
            if child.pipe in ready or time.monotonic() > child.end:
                running.remove(child)
                outcome = child.outcome()
                if _ended_early(outcome) and child.unit.alone():
                    queue.extendleft(child.unit.alone())
                else:
                    yield outcome


def _ended_early(outcome: Outcome) -> bool:
    return any(m.startswith(("crash", "timeout")) for m in outcome.failures.values())


if __name__ == "__main__":
    sys.exit(main())
