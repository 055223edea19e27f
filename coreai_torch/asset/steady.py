"""Read several files of an asset while other processes replace the asset.

A reader opens one file after the other, so that the second may be of a later asset than the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_Result = TypeVar("_Result")
_Identity = tuple[tuple[int, int, int, int], ...]

_ATTEMPTS = 100
_PAUSE = 0.002  # seconds between two attempts


def read_steadily(path: Path, read: Callable[[], _Result]) -> _Result:
    """Return the result of `read`, which is called again if the asset changed meanwhile."""
    for _ in range(_ATTEMPTS):
        before, error = _identity(path), None
        try:
            result = read()
        except Exception as raised:
            error = raised
        if _identity(path) == before and not (before is None and _is_moving(path)):
            break
        time.sleep(_PAUSE)
    if error is not None:
        raise error
    return result


def _identity(path: Path) -> _Identity | None:
    """Return what differs between two assets at the same path; None if there is none."""
    try:
        found = [file.stat() for file in (path, *sorted(path.iterdir()))]
    except OSError:
        return None
    return tuple((one.st_dev, one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def _is_moving(path: Path) -> bool:
    """Whether another process may be replacing the asset by two renames."""
    return any(path.parent.glob(f"{workshop_prefix(path)}*"))


def workshop_prefix(path: Path) -> str:
    """Return how the names of folders begin in which a new version of `path` is written."""
    return f".{path.stem}-"
