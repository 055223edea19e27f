"""Convert tensors to the arrays that the runtime takes, and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from ..ir.types import narrow, scalar_dtype

# Dtypes that numpy lacks: the integer dtype with the same bits, and the dtype of ml_dtypes.
_BITS: dict[torch.dtype, tuple[torch.dtype, Any]] = {
    torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
    torch.float8_e8m0fnu: (torch.uint8, ml_dtypes.float8_e8m0fnu),
}
_DTYPE = {np.dtype(named): (carrier, dtype) for dtype, (carrier, named) in _BITS.items()}


def array(value: Any) -> np.ndarray[Any, Any]:
    """Return a tensor or number as an array; 64-bit dtypes are narrowed as the converter does."""
    if not isinstance(value, torch.Tensor):
        value = torch.tensor(value, dtype=scalar_dtype(value))
    value = value.detach().cpu().to(narrow(value.dtype)).contiguous()
    if value.dtype in _BITS:
        carrier, named = _BITS[value.dtype]
        return value.view(carrier).numpy().view(named)  # type: ignore[no-any-return]
    return value.numpy()  # type: ignore[no-any-return]


def tensor(values: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return an array as a tensor with its own memory."""
    if values.dtype in _DTYPE:
        carrier, dtype = _DTYPE[values.dtype]
        bits = values.view(np.uint16 if carrier == torch.uint16 else np.uint8)
        return torch.from_numpy(np.array(bits, copy=True)).view(dtype)
    return torch.from_numpy(np.array(values, copy=True))
