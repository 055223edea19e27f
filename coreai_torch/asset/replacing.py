"""Replace an asset or a folder of assets: nothing else, and in one step."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EEXIST, ENOENT, ENOTDIR, ENOTEMPTY
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import OverwriteError
from ..sandbox.scratch import announce_scratch
from . import resources
from .resources import workshop_prefix
from .space import full_disk_reported

_ATTEMPTS = 100  # at replacing a folder while other processes replace it too
_MOVED = (ENOENT, ENOTDIR, ENOTEMPTY, EEXIST)  # another process was faster
_SHOWN = 3  # names in a message


@dataclass(frozen=True)
class Kind:
    """A kind of folder that this package writes, and may replace."""

    name: str
    # Returns the names in a folder that do not belong to it; None if it is not of this kind.
    foreign: Callable[[Path], list[str] | None]
    hint: str = "pass another path, or overwrite=True (--force) to delete what is there"


ASSET = Kind("an .aimodel", resources.foreign_names)


def check_replaceable(path: Path, kind: Kind, *, overwrite: bool = False) -> None:
    """Raise if there is anything at the path but an empty folder, or a folder of this kind."""
    if overwrite or not path.exists():
        return
    foreign = kind.foreign(path) if path.is_dir() else None
    if foreign == [] or (path.is_dir() and not any(path.iterdir())):
        return
    problem = f"is not {kind.name}"
    if foreign:
        names = ", ".join(foreign[:_SHOWN]) + ", ..." * (len(foreign) > _SHOWN)
        problem = f"contains what is not part of {kind.name}: {names}"
    raise OverwriteError(f"{path} exists and {problem}\n  try   {kind.hint}")


@contextmanager
def replacing(path: Path, kind: Kind, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield the path of a folder to write, beside `path`; it then takes the place of `path`.

    After an exception `path` is as it was.
    """
    check_replaceable(path, kind, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with full_disk_reported(path):
        workshop = Path(tempfile.mkdtemp(prefix=workshop_prefix(path), dir=path.parent))
    announce_scratch(workshop)
    new = workshop / path.name
    try:
        yield new
        check_replaceable(path, kind, overwrite=overwrite)
        _swap_in(new, path, workshop)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _swap_in(new: Path, path: Path, workshop: Path) -> None:
    """Move `new` to `path`, and what was there to the workshop; other processes may do the same."""
    for attempt in range(_ATTEMPTS):
        try:
            if not path.is_symlink() and not path.exists():
                new.rename(path)
            elif not exchange(new, path):
                _swap_by_renames(new, path, workshop / f"replaced-{attempt}")
        except OSError as error:
            if error.errno not in _MOVED or attempt == _ATTEMPTS - 1 or not new.exists():
                raise
        else:
            return


def _swap_by_renames(new: Path, path: Path, aside: Path) -> None:
    """Replace by two renames; if the second fails, undo the first."""
    path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        if not path.exists():
            aside.rename(path)
        raise


_AT_FDCWD = -100  # relative to the current folder; of Linux
_RENAME_EXCHANGE = 1 << 1  # renameat2 of Linux 3.15
_RENAME_SWAP = 0x2  # renamex_np of macOS 10.12
# The kernel, its filter of system calls, or the file system lacks the exchange; NFS, FAT.
_MISSING = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


def exchange(one: Path, other: Path) -> bool:
    """Give each path the content of the other; return False if the system cannot.

    Raise an `OSError` if one of them does not exist or cannot be renamed.
    """
    call = _system_call()
    if call is None or call(os.fsencode(one), os.fsencode(other)) == 0:
        return call is not None
    number = ctypes.get_errno()
    if number in _MISSING:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


@cache
def _system_call() -> Callable[[bytes, bytes], int] | None:
    """Return the function of the C library, or None without one."""
    library: Any = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        swap = library.renamex_np
        swap.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint]
        return lambda one, other: int(swap(one, other, _RENAME_SWAP))
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):  # glibc 2.28, musl 1.2.6
        rename = library.renameat2
        rename.argtypes = [
            *(ctypes.c_int, ctypes.c_char_p),
            *(ctypes.c_int, ctypes.c_char_p),
            ctypes.c_uint,
        ]
        at = _AT_FDCWD
        return lambda one, other: int(rename(at, one, at, other, _RENAME_EXCHANGE))
    return None
