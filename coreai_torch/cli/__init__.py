"""The `coreai-torch` command.

Exit codes: 0 success; 1 a check failed; 2 wrong usage; 3 the command failed, with an error code
that docs/errors.md explains; 130 interrupted.
"""

import signal
from collections.abc import Sequence
from typing import Any

from .._console_script import end_on_interruption

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console script and exit with its exit code.

    Ctrl-C ends the process without a traceback, except while the command runs: then it is an
    error with exit code 130.
    """
    changed = arguments is None and end_on_interruption()
    try:
        from .app import main as run

        run(arguments)
    finally:
        if changed:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def __getattr__(name: str) -> Any:
    if name == "app":
        from . import app

        return app.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
