"""How near is near enough, and the entries that need another measure, each with its reason."""

from __future__ import annotations

import torch

# Relative and absolute, by the dtype of the result; integers and booleans are exact.
BY_DTYPE = {
    torch.float32: (1e-5, 1e-5),
    torch.complex64: (1e-5, 1e-5),
    torch.float16: (1e-3, 1e-3),
    torch.bfloat16: (1e-2, 1e-2),  # eight bits of mantissa: one unit is 0.8 %
}

# (entry, dtype of the result): (relative, absolute, reason)
LOOSENED: dict[tuple[str, torch.dtype], tuple[float, float, str]] = {
    ("nn.functional.multi_head_attention_forward", torch.float32): (
        5e-5,
        1e-4,
        "projections reach 1e4 and cancel: eager itself is up to 8e-5 + 2e-5 * x from float64",
    ),
}

# Entries whose values mean nothing: only dtype and shape are compared.
UNDEFINED = {
    "empty": "returns uninitialised memory",
    "empty_like": "returns uninitialised memory",
    "empty_permuted": "returns uninitialised memory",
    "empty_strided": "returns uninitialised memory",
    "new_empty": "returns uninitialised memory",
    "new_empty_strided": "returns uninitialised memory",
}


def tolerance(name: str, dtype: torch.dtype) -> tuple[float, float]:
    if (name, dtype) in LOOSENED:
        return LOOSENED[name, dtype][:2]
    return BY_DTYPE.get(dtype, (0, 0))


def values_are_undefined(name: str) -> bool:
    return name in UNDEFINED
