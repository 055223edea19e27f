"""Give freed memory back to the system, or keep it; release pages of mapped files."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

LARGE = 1 << 22  # bytes of a tensor after whose processing it is worth the time

# Bits of an entry of /proc/self/pagemap: proc_pid_pagemap(5).
_PRESENT, _SWAPPED, _OF_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))
# Options of mallopt(3) with values: M_MMAP_THRESHOLD, of which glibc takes at most 32 MiB,
# M_TRIM_THRESHOLD and M_TOP_PAD.
_KEPT = ((-3, 1 << 25), (-1, (1 << 31) - 1), (-2, 1 << 26))
_DONTNEED = 4  # MADV_DONTNEED of Linux; `mmap` defines it on Linux only


def release_freed_memory() -> None:
    """Return the pages that the C library keeps for later allocations.

    Temporaries of a few megabytes lie between results that stay, so glibc 2.36 keeps them: after
    the compression of 513 million weights to 4 bits it kept 334 MB beside 520 MB of results.
    """
    trim = _function("malloc_trim")  # musl does not have it
    if trim is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for later allocations, in the complete process.

    The runtime allocates copies of the states in every step. glibc 2.36 returns their pages to the
    system each time, and a token with a cache of 256 slots for 28 million weights takes 27 ms
    instead of 16 ms.
    """
    option = _function("mallopt")  # musl does not have it
    if option is not None:
        for name, value in _KEPT:
            option(ctypes.c_int(name), ctypes.c_int(value))


def release_mapped_pages(tensor: torch.Tensor) -> None:
    """Remove the pages of a tensor in a mapped file from the memory of this process.

    They are read from the file again when they are used again, so nothing is released if the file
    does not have the content: if a page is written to, or belongs to no file.
    """
    advise = _function("madvise")
    if advise is None or tensor.device.type != "cpu" or tensor.nbytes < LARGE:
        return
    size = mmap.PAGESIZE
    first, last = -(-tensor.data_ptr() // size), (tensor.data_ptr() + tensor.nbytes) // size
    if first < last and tensor.is_contiguous() and _all_in_file(first, last):
        address, length = first * size, (last - first) * size
        advise(ctypes.c_void_p(address), ctypes.c_size_t(length), ctypes.c_int(_DONTNEED))


def _all_in_file(first: int, last: int) -> bool:
    """Return whether each page from `first` to `last` is absent, or a page of a file."""
    try:
        with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
            file.seek(8 * first)
            content = file.read(8 * (last - first))
    except OSError:
        return False
    entries = np.frombuffer(content, np.uint64)
    is_own = (entries & _SWAPPED != 0) | ((entries & _PRESENT != 0) & (entries & _OF_FILE == 0))
    return len(entries) == last - first and not bool(is_own.any())


def _function(name: str) -> Any:
    """Return a function of the C library; None where there is none."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), name, None)
