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
KEPT = HOME / "ops.json"  # the figures of calls that are not measured now
SECONDS = 300


def measured(name: str, environment: Environment) -> dict[str, Any]:
    """Return the figures of one call, or why there are none."""
    peer = environment is not OWN
    command = [environment.python, CHILD, name, *(["--published"] if peer else [])]
    variables = {**os.environ, "PYTHONPATH": "" if peer else str(ROOT), "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, cwd=HOME, env=variables
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"over {SECONDS} s"}
    lines = done.stdout.splitlines()
    if lines and lines[-1].startswith("{"):
        figures: dict[str, Any] = json.loads(lines[-1])
        return figures
    return {"problem": f"exit code {done.returncode}"}


def main() -> None:
    wanted = [argument for argument in sys.argv[1:] if argument != "--own"]
    HOME.mkdir(parents=True, exist_ok=True)
    problem = "not requested" if "--own" in sys.argv else PUBLISHED.make()
    if problem:
        print(f"the published converter is not measured: {problem}", flush=True)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in CASES:
        if not wanted or any(part in name for part in wanted):
            before = known.get(name, {}).get("published")
            peer = before if problem else measured(name, PUBLISHED)
            known[name] = measured(name, OWN) | {"published": peer, "measured": current()}
            print(name, known[name], flush=True)
            KEPT.write_text(json.dumps(known))
    page.write({name: known[name] for name in CASES if name in known}, FAMILIES)


if __name__ == "__main__":
    main()
