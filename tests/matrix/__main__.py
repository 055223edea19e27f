"""Run the tests with every supported version of torch, Python and coreai-core.

    python -m tests.matrix                      all versions; writes docs/compatibility.md
    python -m tests.matrix --quick 2.15.0 2.9.1 the quick parts; exit code 1 if a test fails

An environment that exists is reused; `--delete` removes each one after its run, for machines
whose disk does not hold all of them (6 GB each). Each part is a task of a fleet run, which the
interpreter of the environment executes: an interrupted run at the same commit continues, and
`coreai-torch fleet report build/matrix` shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coreai_torch import fleet
from tests import provenance
from tests.local_workers import memory_of_one

from .environment import ROOT, Environment, is_installed
from .page import RESULTS, write_page
from .parts import PARTS, Part, dumps, result_of

TORCH = ("2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
# Each of these versions is combined with one torch; all others run Python 3.11 and the newest core.
PYTHON = {"3.12": "2.11.0", "3.13": "2.12.1"}
CORE = {"1.0.0b2": "2.13.0"}
PATIENCE = 4 * 3600  # seconds of one part on a slow machine


def environments(versions: Sequence[str], quick: bool) -> list[Environment]:
    """Return the combinations to run: all torch versions, and each Python and core with one."""
    versions = versions or TORCH
    if quick:
        return [Environment(torch) for torch in versions]
    pythons = {torch: python for python, torch in PYTHON.items() if is_installed(python)}
    found = [Environment(torch, python=pythons.get(torch, "3.11")) for torch in versions]
    cores = [Environment(torch, core=core) for core, torch in CORE.items() if torch in versions]
    return found + cores


def main() -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", help="versions of torch")
    parser.add_argument("--quick", action="store_true", help="only the quick parts")
    parser.add_argument("--delete", action="store_true", help="delete each environment")
    given = parser.parse_args()
    if not given.quick:
        return _run_all(given, ROOT / "build" / "matrix")
    with tempfile.TemporaryDirectory() as folder:  # the quick parts always run
        return _run_all(given, Path(folder))


def _run_all(given: argparse.Namespace, folder: Path) -> int:
    failed = 0
    for environment in environments(given.versions, given.quick):
        if environment.exists():
            environment.update()
        elif given.quick and not environment.fits():
            print(f"torch {environment.torch}: not run, the disk is too small", flush=True)  # noqa: T201
            continue
        else:
            environment.build()
        parts = [part for part in PARTS if (part.quick if given.quick else part.full)]
        failed += _run(parts, environment, folder)
        if not given.quick:
            _store(environment, parts, folder)
        if given.delete:
            environment.remove()
    return bool(failed)


def plan(parts: list[Part], environment: Environment) -> fleet.Plan:
    """Return the plan of parts that the Python of an environment runs."""
    commit = provenance.commit()
    models = [
        {
            "source": part.name,
            "config": {"arguments": list(part.arguments), "commit": commit},
        }
        for part in parts
    ]
    data = {
        "models": models,
        "grid": {"environment": [environment.folder.name]},
        "environments": {environment.folder.name: str(environment.interpreter)},
        "steps": [{"call": "tests.matrix.parts:run_part"}],
        "limits": {"seconds": PATIENCE, "memory": memory_of_one(1)},
    }
    return fleet.parse_plan(data, folder=ROOT, name="matrix")


def _run(parts: list[Part], environment: Environment, folder: Path) -> int:
    """Run parts one after another, each on all cores; return the number of failed tests."""
    os.environ["PYTHONPATH"] = str(ROOT)  # the environment may contain another checkout

    def observe(summary: fleet.RunSummary) -> None:
        result = result_of(summary.latest)
        print(  # noqa: T201
            f"torch {environment.torch}, Python {environment.python}, core {environment.core}: "
            f"{result.part}: {result.passed} passed, {result.failed} failed, "
            f"{result.skipped} skipped in {result.seconds:.0f} s",
            flush=True,
        )
        for failure in result.failures:
            print(f"  {failure}", flush=True)  # noqa: T201

    fleet.run(plan(parts, environment), folder, observer=observe)
    rows = [row for row in fleet.read_rows(folder) if row["environment"] == environment.folder.name]
    return sum(result_of(row).failed for row in rows)


def _store(environment: Environment, parts: list[Part], folder: Path) -> None:
    rows = {row["id"]: row for row in fleet.read_rows(folder)}
    tasks = [task.id for task in plan(parts, environment).tasks()]
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored[environment.folder.name] = {
        "torch": environment.torch,
        "python": environment.python,
        "core": environment.core,
        "commit": provenance.commit(),
        "results": [result_of(rows[task]).as_json() for task in tasks],
    }
    RESULTS.write_text(dumps(stored))
    write_page(stored)


if __name__ == "__main__":
    sys.exit(main())
