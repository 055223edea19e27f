"""How near is near enough, and the entries that are measured otherwise, with the reason."""

from __future__ import annotations

import torch

from .. import numeric_limits

# Relative and absolute, by the dtype of the result; integers and booleans are exact.
BY_DTYPE = numeric_limits.pairs(numeric_limits.EXACT_FLOAT8)

# (entry, dtype of the result): (relative, absolute, reason)
LOOSENED: dict[tuple[str, torch.dtype], tuple[float, float, str]] = {
    ("nn.functional.multi_head_attention_forward", torch.float16): (
        5e-3,
        5e-3,
        "logits of whole numbers times 0.7071 are none; summed in halves, as the run time on Linux "
        "sums them, eager's own steps give -30.125 for -30 too",
    ),
}

# Entries that are made of matrix products. Their samples of 16 bits keep shapes and arguments,
# but hold small whole numbers, of which every order of summation gives the same bits: the run
# time on Linux accumulates half products in halves, the devices and torch accumulate wide.
PRODUCTS = (
    "__rmatmul__",
    "addbmm",
    "addmm",
    "addmm.decomposed",
    "addmv",
    "baddbmm",
    "bmm",
    "einsum",
    "inner",
    "linalg.multi_dot",
    "matmul",
    "mm",
    "mv",
    "nn.functional.bilinear",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
    "nn.functional.linear",
    "nn.functional.linear_cross_entropy",
    "nn.functional.linear_cross_entropy.chunked",
    "nn.functional.linear_cross_entropy.chunked_none",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.scaled_dot_product_attention",
    "tensordot",
)

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


def in_whole_numbers(name: str, dtype: str) -> bool:
    return dtype in ("f16", "bf16") and name in PRODUCTS


def values_are_undefined(name: str) -> bool:
    return name in UNDEFINED
