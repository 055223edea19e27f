"""The memory of an array of the runtime, to write parts of it.

`NDArray.numpy` of coreai-core 1.0.0b3 returns a copy, and the buffer protocol is read-only, so a
caller could only make a new array, which takes 5 ns for each element.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any

import numpy as np
import torch
from coreai.runtime import NDArray
from torch import Tensor

from ..numerics.arrays import array, tensor
from .worker import to_numpy


def memory_of(given: NDArray) -> Tensor:
    """Return a tensor that shares the memory of an array and keeps the array."""
    raw = np.frombuffer(given._tensor, dtype=np.uint8)
    memory: Any = (ctypes.c_uint8 * raw.nbytes).from_address(raw.ctypes.data)
    dtype = tensor(np.zeros(1, dtype=given.dtype)).dtype
    memory.array = given  # torch keeps `memory` as long as a tensor uses it
    return torch.frombuffer(memory, dtype=dtype).reshape(tuple(given.shape))


_ARRAYS: weakref.WeakValueDictionary[int, NDArray] = weakref.WeakValueDictionary()


def shared(value: Tensor) -> Tensor:
    """Return a copy of a tensor in the memory of an array, which `array_of` finds.

    A copy without that memory is returned for dtypes that the runtime lacks and empty tensors.
    """
    content = array(value)
    if not content.size or tensor(content[:0]).dtype != value.dtype or not can_write():
        return value.clone()
    made = NDArray(content)
    copy = memory_of(made)
    _ARRAYS[copy.data_ptr()] = made
    return copy


def array_of(value: Tensor) -> NDArray | None:
    """Return the array whose memory a tensor has, in the same order."""
    found = _ARRAYS.get(value.data_ptr()) if value.is_contiguous() else None
    if found is None or tuple(found.shape) != tuple(value.shape):
        return None
    return found if memory_of(found).dtype == value.dtype else None


@cache
def can_write() -> bool:
    """Return whether the runtime reads what is written to the memory of an array."""
    given = NDArray(array(torch.zeros(2, 3)))
    try:
        memory_of(given)[1, 2] = 1.0
    except (AttributeError, TypeError, ValueError):
        return False
    return bool(to_numpy(given)[1, 2] == 1.0)
