"""Measure all calls, or those whose names contain an argument, and write the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.environments import HOME
from benchmarks.ops import page
from benchmarks.ops.cases import CASES
from tests.cost.complexity import FAMILIES
from tests.provenance import current, describe

ROOT = Path(__file__).parents[2]
KEPT = HOME / "ops.json"  # the figures of calls that are not measured now
SECONDS = 300


def measured(name: str) -> dict[str, Any]:
    """Return the figures of one call, or why there are none."""
    command = [sys.executable, "-m", "benchmarks.ops.child", name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"over {SECONDS} s"}
    lines = done.stdout.splitlines()
    if lines and lines[-1].startswith("{"):
        figures: dict[str, Any] = json.loads(lines[-1])
        return figures
    return {"problem": f"exit code {done.returncode}"}


def main() -> None:
    wanted = sys.argv[1:]
    HOME.mkdir(parents=True, exist_ok=True)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in CASES:
        if not wanted or any(part in name for part in wanted):
            known[name] = measured(name)
            print(name, known[name], flush=True)
            KEPT.write_text(json.dumps(known))
    figures = {name: known[name] for name in CASES if name in known}
    page.write(figures, FAMILIES, describe(current()))


if __name__ == "__main__":
    main()
