"""`coreai-torch`: everything around a conversion, from a shell.

Exit codes: 0 done and right; 1 a check failed; 2 a wrong call; 3 it could not be done, with an
error code that docs/errors.md explains; 130 interrupted.
"""

from .app import app, main

__all__ = ["app", "main"]
