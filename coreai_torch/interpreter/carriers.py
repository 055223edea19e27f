"""Compute with dtypes that torch stores but hardly supports, by way of other dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .registry import Result, Tensor

WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)
NARROW_FLOATS = (torch.float16, torch.bfloat16)

# A dtype of the same width whose elements torch can move.
_MOVED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
    **dict.fromkeys(FLOAT8, torch.uint8),
}

# The largest finite number. The runtime overflows beyond it; torch rounds some values back.
_FLOAT8_LIMITS = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def is_integer(dtype: torch.dtype) -> bool:
    """Return whether the elements are integers; booleans are not."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def moved(function: Callable[..., Result], dtype: torch.dtype) -> Callable[..., Result]:
    """Wrap a function that only moves elements, for a dtype that torch cannot move.

    Operands of `dtype` are viewed as another dtype of the same width, and results viewed back.
    """
    carrier = _MOVED.get(dtype)
    if carrier is None:
        return function

    def carried(*operands: Any) -> Result:
        result = function(*(_view_as(o, dtype, carrier) for o in operands))
        if isinstance(result, torch.Tensor):
            return _view_as(result, carrier, dtype)
        return [_view_as(r, carrier, dtype) for r in result or ()]

    carried.__annotations__ = getattr(function, "__annotations__", {})
    carried.__wrapped__ = function  # type: ignore[attr-defined]  # lets inspect find the signature
    return carried


def _view_as(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
    is_old = isinstance(value, torch.Tensor) and value.dtype == old
    return value.view(new) if is_old else value


def by_numpy(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Wrap a numpy function as one of tensors, for unsigned integers of 16 bits and more."""

    def computed(*operands: Tensor) -> Tensor:
        with np.errstate(all="ignore"):
            made = function(*(to_numpy(o) for o in operands))
        return from_numpy(made, operands[0].device)

    return computed


def to_numpy(x: Tensor) -> Any:
    """Return a numpy view of a tensor, or a copy if the tensor is on another device."""
    return x.cpu().numpy()


def from_numpy(array: Any, device: torch.device) -> Tensor:
    """Return a numpy result as a tensor; it may be a scalar or have negative strides."""
    return torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array))).to(device)


def on_host(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap a function that only the CPU supports; operands and result move between devices."""

    def computed(*operands: Any) -> Tensor:
        device = operands[0].device
        if device.type == "cpu":
            return function(*operands)
        moved_ = (o.cpu() if isinstance(o, torch.Tensor) else o for o in operands)
        return function(*moved_).to(device)

    computed.__annotations__ = getattr(function, "__annotations__", {})
    computed.__wrapped__ = function  # type: ignore[attr-defined]  # lets inspect find the signature
    return computed


def by_float32(function: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Tensor]:
    """Wrap a float function for 8-bit floats: compute in float32 and round once."""

    def computed(*operands: Tensor) -> Tensor:
        result = function(*(o.float() if o.dtype in FLOAT8 else o for o in operands))
        return to_float8(result, dtype) if result.dtype == torch.float32 else result

    return computed


def to_float8(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Round as the runtime does: values beyond the largest number become infinite or NaN."""
    x = x.float()
    limit = _FLOAT8_LIMITS.get(dtype)
    if limit is None:
        return x.to(dtype)
    beyond = torch.inf if dtype == torch.float8_e5m2 else torch.nan
    rounded = x.clamp(-limit, limit).to(dtype).float()
    overflowed = torch.full_like(x, beyond).copysign(x)
    return torch.where(x.abs() > limit, overflowed, rounded).to(dtype)
