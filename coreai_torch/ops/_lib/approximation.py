"""Helpers for formulas written in torch: computation in float32, and polynomials."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...torch_compat import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

Formula = Callable[..., torch.Tensor]


def in_float32(formula: Formula) -> Formula:
    """Make a formula compute in float32 and return the dtype of torch's type promotion."""

    @functools.wraps(formula)
    def compute(*operands: Any) -> torch.Tensor:
        _, dtype = elementwise_dtypes(
            *operands, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT
        )
        wide = [o.to(torch.float32) if isinstance(o, torch.Tensor) else o for o in operands]
        return formula(*wide).to(dtype)

    return compute


def polynomial(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """Return the sum of `coefficients[i] * x ** i`, by Horner's rule."""
    *lower, total = coefficients
    value = x * total + lower.pop()
    while lower:
        value = value * x + lower.pop()
    return value
