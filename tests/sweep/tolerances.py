"""Tolerances, and the entries with other tolerances or samples, with reasons."""

from __future__ import annotations

import torch

from .. import numeric_limits

# Relative and absolute tolerance by the dtype of the result; integers and booleans are exact.
BY_DTYPE = numeric_limits.pairs(numeric_limits.EXACT_FLOAT8)

# (entry, dtype of the result): (relative, absolute, reason)
LOOSENED: dict[tuple[str, torch.dtype], tuple[float, float, str]] = {
    ("nn.functional.multi_head_attention_forward", torch.float16): (
        5e-3,
        5e-3,
        "logits are integers times 0.7071, which round; with float16 sums, as in the runtime on "
        "Linux, the steps of eager also give -30.125 instead of -30",
    ),
}

# Entries that are matrix products or cumulative sums. Their 16-bit samples keep shapes and
# arguments, but have small integers as values, whose sum does not depend on the order: the Linux
# runtime accumulates these in 16 bits, devices and torch in float32.
PRODUCTS = (
    "__rmatmul__",
    "addbmm",
    "addmm",
    "addmm.decomposed",
    "addmv",
    "baddbmm",
    "bmm",
    "cumsum",
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

# Entries with undefined values: only dtype and shape are compared.
UNDEFINED = {
    "empty": "returns uninitialized memory",
    "empty_like": "returns uninitialized memory",
    "empty_permuted": "returns uninitialized memory",
    "empty_strided": "returns uninitialized memory",
    "new_empty": "returns uninitialized memory",
    "new_empty_strided": "returns uninitialized memory",
}


def tolerance(name: str, dtype: torch.dtype) -> tuple[float, float]:
    if (name, dtype) in LOOSENED:
        return LOOSENED[name, dtype][:2]
    return BY_DTYPE.get(dtype, (0, 0))


def in_whole_numbers(name: str, dtype: str) -> bool:
    return dtype in ("f16", "bf16") and name in PRODUCTS


def values_are_undefined(name: str) -> bool:
    return name in UNDEFINED
