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
_NEAR_A_POLE = (
    3e-5,
    1e-5,
    "trigamma(-7.9506) is 412.7442 in float64 and here, and 412.7526 in float32 eager",
)
LOOSENED: dict[tuple[str, torch.dtype], tuple[float, float, str]] = {
    **{(f"polygamma.polygamma_n_{n}", torch.float32): _NEAR_A_POLE for n in range(5)},
    ("special.polygamma.special_polygamma_n_0", torch.float32): _NEAR_A_POLE,
    ("nn.functional.scaled_dot_product_attention", torch.float32): (
        2e-5,
        4e-5,
        "logits reach 200, where a unit is 1.5e-5: eager itself is up to 1.7e-5 from float64",
    ),
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
