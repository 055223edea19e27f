"""Types that torch holds but hardly computes with, and what stands in for them meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .registry import Result, Tensor

WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)
NARROW_FLOATS = (torch.float16, torch.bfloat16)

# A type of the same width that torch can move about.
_MOVED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
    **dict.fromkeys(FLOAT8, torch.uint8),
}

# The largest finite number. The run time knows no mercy beyond it, torch rounds some back.
_FLOAT8_LIMITS = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def is_integer(dtype: torch.dtype) -> bool:
    """Whether the elements are integers; booleans are not."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def moved(function: Callable[..., Result], dtype: torch.dtype) -> Callable[..., Result]:
    """A function that only moves elements, for elements that torch would not move.

    Operands of `dtype` come as another type of the same width, and results go back.
    """
    carrier = _MOVED.get(dtype)
    if carrier is None:
        return function

    def carried(*operands: Any) -> Result:
        result = function(*(_viewed(o, dtype, carrier) for o in operands))
        if isinstance(result, torch.Tensor):
            return _viewed(result, carrier, dtype)
        return [_viewed(r, carrier, dtype) for r in result or ()]

    carried.__annotations__ = getattr(function, "__annotations__", {})
    carried.__wrapped__ = function  # type: ignore[attr-defined]  # how inspect finds the signature
    return carried


def _viewed(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
    is_old = isinstance(value, torch.Tensor) and value.dtype == old
    return value.view(new) if is_old else value


def by_numpy(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function of numpy's as one of tensors, for the wide unsigned integers."""

    def computed(*operands: Tensor) -> Tensor:
        with np.errstate(all="ignore"):
            return from_numpy(function(*(o.numpy() for o in operands)))

    return computed


def from_numpy(array: Any) -> Tensor:
    """Numpy's result, also where it is a bare number or a view that runs backwards."""
    return torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))


def by_float32(function: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Tensor]:
    """A function of floats for eight-bit ones: computed in 32 bits, rounded once."""

    def computed(*operands: Tensor) -> Tensor:
        result = function(*(o.float() if o.dtype in FLOAT8 else o for o in operands))
        return to_float8(result, dtype) if result.dtype == torch.float32 else result

    return computed


def to_float8(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded as the run time does: what is beyond the largest number is infinite or NaN."""
    x = x.float()
    limit = _FLOAT8_LIMITS.get(dtype)
    if limit is None:
        return x.to(dtype)
    beyond = torch.inf if dtype == torch.float8_e5m2 else torch.nan
    rounded = x.clamp(-limit, limit).to(dtype).float()
    too_far = torch.full_like(x, beyond).copysign(x)
    return torch.where(x.abs() > limit, too_far, rounded).to(dtype)
