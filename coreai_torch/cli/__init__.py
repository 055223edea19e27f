"""The `coreai-torch` command.

Exit codes: 0 success; 1 a check failed; 2 wrong usage; 3 the command failed, with an error code
that docs/errors.md explains; 130 interrupted.
"""

from .app import app, main

__all__ = ["app", "main"]
