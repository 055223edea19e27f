"""Run the flows of programs that other people built on the converter, unmodified.

    python -m tests.clients                 all of them; exit code 1 if one fails
    python -m tests.clients executorch      one of them
    python -m tests.clients --record        write the results into docs/migration.md

Each program has a separate environment in the folder of `tests.matrix`, which is reused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.matrix.environment import ROOT

from . import page
from .environment import CLIENTS, Client

CRASHED = {"passed": 0, "failed": 1, "skipped": 0, "conditions": 0, "rows": []}


def run(client: Client) -> dict[str, Any]:
    """Run the flow of one client and its own tests, and return the results."""
    pytest = [client.interpreter, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-rfE"]
    pytest += ["-o", "filterwarnings=ignore"]  # the warnings of a client are its own
    pytest += ["-p", "tests.clients.recording"]
    script = [client.interpreter, "-W", "ignore", "tests/clients/own_tests.py"]
    versions = f"from tests import provenance; print(*provenance.current({client.name!r}).values())"
    found = subprocess.run(
        [client.interpreter, "-c", versions], cwd=ROOT, text=True, capture_output=True, check=True
    )
    names = ("commit", "python", "torch", "coreai-core", client.name)
    results: dict[str, Any] = {
        "measured": dict(zip(names, found.stdout.split(), strict=True)),
        "flow": _result(lambda path: [*pytest, "--result", path, *client.tests]),
    }
    if client.own_tests:
        results["own tests"] = _result(lambda path: [*script, path, *client.own_tests])
    return results


def _result(command: Callable[[str], list[Any]]) -> dict[str, Any]:
    """Run a command that writes a result file; a crash is a failed test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(command(str(path)), cwd=ROOT, env=variables, check=False)
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else dict(CRASHED)
    if ran.returncode and not found["failed"]:
        found["failed"] = 1
    return found


def main() -> int:
    """Build the environments, run what is asked for and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clients", nargs="*", help=", ".join(client.name for client in CLIENTS))
    parser.add_argument("--record", action="store_true", help="write the results into the page")
    options = parser.parse_args()
    results = {}
    for client in CLIENTS:
        if not options.clients or client.name in options.clients:
            client.build()
            print(f"{client.name} {client.version}", flush=True)  # noqa: T201
            results[client.name] = run(client)
    if options.record:
        page.record(results)
    parts = {name: [found["flow"], found.get("own tests")] for name, found in results.items()}
    failed = [name for name, both in parts.items() if any(part and part["failed"] for part in both)]
    print(f"failed: {failed}" if failed else "all flows pass")  # noqa: T201
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
