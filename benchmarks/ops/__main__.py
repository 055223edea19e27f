"""Measure all calls, or those whose names contain an argument, and write the page.

The published converter runs in an environment that `benchmarks.environments` creates on first use;
`--own` leaves it out, and the page then keeps the earlier ratios.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.environments import HOME, OWN, PUBLISHED, Environment
from benchmarks.ops import page
from benchmarks.ops.cases import CASES
from tests.cost.complexity import FAMILIES
from tests.provenance import current

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).parent / "child.py"
KEPT = Path(__file__).parent / "figures.json"  # calls that are not measured now keep their figures


class Server:
    """A process that measures calls in one environment, each in a fork."""

    def __init__(self, environment: Environment) -> None:
        peer = environment is not OWN
        variables = {**os.environ, "PYTHONPATH": "" if peer else str(ROOT)}
        self._process = subprocess.Popen(
            [environment.python, CHILD, *(["--published"] if peer else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HOME,
            env={**variables, "PYTHONWARNINGS": "ignore"},
        )

    def measured(self, name: str) -> dict[str, Any]:
        """Return the figures of one call, or why there are none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                figures: dict[str, Any] = json.loads(line)
                return figures
        return {"problem": "the process ended"}


def main() -> None:
    wanted = [argument for argument in sys.argv[1:] if argument != "--own"]
    HOME.mkdir(parents=True, exist_ok=True)
    problem = "not requested" if "--own" in sys.argv else PUBLISHED.make()
    if problem:
        print(f"the published converter is not measured: {problem}", flush=True)
    ours, theirs = Server(OWN), None if problem else Server(PUBLISHED)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in CASES:
        if not wanted or any(part in name for part in wanted):
            before = known.get(name, {}).get("published")
            peer = theirs.measured(name) if theirs else before
            known[name] = ours.measured(name) | {"published": peer, "measured": current()}
            print(name, known[name], flush=True)
            KEPT.write_text(json.dumps(known, indent=1) + "\n")
    page.write({name: known[name] for name in CASES if name in known}, FAMILIES)


if __name__ == "__main__":
    main()
