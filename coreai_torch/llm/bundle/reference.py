"""Logits of the model that a bundle was made from, and how far a bundle may differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...numerics.tolerance import DECODER_STEP, limits
from .int8_cache import LIMIT
from .metadata import BundleMetadata

_LIMITS = limits(DECODER_STEP)


def compute_dtype(model: Any) -> torch.dtype:
    """Return the dtype of weights that are not compressed; scales may have another one."""
    plain = (
        one.dtype
        for name, one in model.named_parameters()
        if "parametrizations" not in name and one.is_floating_point()
    )
    found: torch.dtype = next(plain, model.dtype)
    return found


def limit_of(dtype: torch.dtype) -> float:
    """Return the largest accepted difference relative to the largest logit.

    Logits are float16, so a float32 model has the limit of one float16 rounding.
    """
    return max(_LIMITS[dtype], 1e-3)


def int8_limit(metadata: BundleMetadata) -> float:
    """Return the difference that flipped roundings of an int8 cache explain; 0 for floats."""
    return LIMIT if metadata.kv_cache == "int8" else 0.0


def with_cache(model: Any, metadata: BundleMetadata) -> Any:
    """Return the model to compare a bundle with: one that rounds like an int8 cache."""
    if metadata.kv_cache != "int8":
        return model
    from .rounded_cache import RoundedCacheModel

    return RoundedCacheModel(model)


def random_tokens(length: int, vocabulary: int, seed: int = 0) -> Tensor:
    """Return reproducible random tokens `[length]`."""
    return torch.randint(0, vocabulary, (length,), generator=torch.Generator().manual_seed(seed))


def eager_logits(model: Any, tokens: Tensor) -> Tensor:
    """Return the model's own logits `[length, vocab]`."""
    with torch.no_grad():
        return torch.as_tensor(model(input_ids=tokens[None], use_cache=False).logits[0].float())


def difference(actual: Tensor, want: Tensor) -> float:
    """Return the largest difference relative to the largest expected value; NaN is infinite."""
    gap = float((actual.float() - want.float()).abs().max()) / max(float(want.abs().max()), 1e-30)
    return gap if gap == gap else float("inf")
