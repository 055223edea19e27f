"""Run the flows of programs that other people built on the converter, unmodified.

    python -m tests.clients                 all of them; exit code 1 if one fails
    python -m tests.clients executorch      one of them

Each program has a separate environment in the folder of `tests.matrix`, which is reused.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.matrix.environment import ROOT

from .environment import CLIENTS, Client


def run(client: Client) -> int:
    """Run the flow of one client and return 0 if it passes."""
    pytest = [client.interpreter, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-rfE"]
    pytest += ["-o", "filterwarnings=ignore"]  # the warnings of a client are its own
    commands = [[*pytest, *client.tests]]
    if client.own_tests:
        script = [client.interpreter, "-W", "ignore", "tests/clients/own_tests.py"]
        commands.append([*script, *client.own_tests])
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.run(c, cwd=ROOT, env=variables, check=False) for c in commands]
    return max(abs(run.returncode) for run in runs)


def main() -> int:
    """Build the environments, run what is asked for and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clients", nargs="*", help=", ".join(client.name for client in CLIENTS))
    chosen = parser.parse_args().clients
    failed = []
    for client in CLIENTS:
        if not chosen or client.name in chosen:
            client.build()
            print(f"{client.name} {client.version}", flush=True)  # noqa: T201
            if run(client):
                failed.append(client.name)
    print(f"failed: {failed}" if failed else "all flows pass")  # noqa: T201
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
