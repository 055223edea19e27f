"""The `coreai-torch` command.

Exit codes: 0 success; 1 a check failed; 2 wrong usage; 3 the command failed, with an error code
that docs/errors.md explains; 130 interrupted.
"""

import signal
import threading
from collections.abc import Sequence
from typing import Any

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console script and exit with its exit code.

    Ctrl-C ends the process without a traceback while the modules of the command are imported.
    """
    before = signal.getsignal(signal.SIGINT)
    is_script = arguments is None and threading.current_thread() is threading.main_thread()
    can_change = is_script and before is not signal.SIG_IGN  # a background job ignores Ctrl-C
    if can_change:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .app import main as run

    if can_change:
        signal.signal(signal.SIGINT, before)
    run(arguments)


def __getattr__(name: str) -> Any:
    if name == "app":
        from . import app

        return app.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
