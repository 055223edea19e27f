"""Run the tests with every supported version of torch, Python and coreai-core.

    python -m tests.matrix                      all versions; writes docs/compatibility.md
    python -m tests.matrix --quick 2.15.0 2.9.1 the quick parts; exit code 1 if a test fails

An environment that exists is reused; `--delete` removes each one after its run, for machines
whose disk does not hold all of them (6 GB each).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tests import provenance

from .environment import Environment, is_installed
from .page import RESULTS, write_page
from .parts import PARTS, Result, dumps, run

TORCH = ("2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
# Each of these versions is combined with one torch; all others run Python 3.11 and the newest core.
PYTHON = {"3.12": "2.11.0", "3.13": "2.12.1"}
CORE = {"1.0.0b2": "2.13.0"}


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
        results = [_run(part, environment) for part in parts]
        failed += sum(result.failed for result in results)
        if not given.quick:
            _store(environment, results)
        if given.delete:
            environment.remove()
    return bool(failed)


def _run(part, environment: Environment) -> Result:
    result = run(part, environment)
    print(  # noqa: T201
        f"torch {environment.torch}, Python {environment.python}, core {environment.core}: "
        f"{result.part}: {result.passed} passed, {result.failed} failed, "
        f"{result.skipped} skipped in {result.seconds:.0f} s",
        flush=True,
    )
    for failure in result.failures:
        print(f"  {failure}", flush=True)  # noqa: T201
    return result


def _store(environment: Environment, results: list[Result]) -> None:
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored[environment.folder.name] = {
        "torch": environment.torch,
        "python": environment.python,
        "core": environment.core,
        "commit": provenance.commit(),
        "results": [result.as_json() for result in results],
    }
    RESULTS.write_text(dumps(stored))
    write_page(stored)


if __name__ == "__main__":
    sys.exit(main())
