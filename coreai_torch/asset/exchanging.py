"""Exchange two files or folders in one step, where the system can.

Two renames leave a moment in which the path does not exist.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

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
