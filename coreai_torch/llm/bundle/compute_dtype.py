"""The dtype that a decoder computes in."""

from __future__ import annotations

from typing import Any

import torch


def compute_dtype(model: Any) -> torch.dtype:
    """Return the dtype of weights that are not compressed; scales may have another one."""
    plain = (
        one.dtype
        for name, one in model.named_parameters()
        if "parametrizations" not in name and one.is_floating_point()
    )
    found: torch.dtype = next(plain, model.dtype)
    return found
