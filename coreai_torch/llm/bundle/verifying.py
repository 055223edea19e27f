"""Compare a written bundle with the model that it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from ...numerics.tolerance import DECODER_STEP, limits
from .compute_dtype import compute_dtype
from .int8_cache import LIMIT
from .metadata import BundleMetadata
from .opening import open_bundle
from .runtime import Sequence

_PROMPT, _STEPS = 12, 4
_LIMITS = limits(DECODER_STEP)


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


def verify_bundle(bundle: Path, model: Any) -> None:
    """Run a prompt and single tokens; raise `ConversionError` if any logits differ."""
    # The Linux runtime accumulates float16 products in 16 bits, unlike devices.
    dtype = compute_dtype(model)
    runtime = open_bundle(bundle, "torch" if dtype == torch.float16 else "isolated")
    metadata = runtime.metadata
    length = min(_PROMPT + _STEPS, metadata.max_context_length)
    tokens = random_tokens(length, metadata.vocab_size)
    prompt = max(length - _STEPS, 1)
    sequence = Sequence(runtime, runtime.states(fill=runtime.unused))
    rows = [sequence.append(tokens[:prompt])]
    rows += [sequence.append(one[None]) for one in tokens[prompt:]]
    want = eager_logits(with_cache(model, metadata), tokens)
    if not bool(torch.isfinite(want).all()):
        raise ConversionError(
            f"{type(model).__name__} itself computes logits that are not finite\n"
            "  try   check its weights for NaN and infinities, or load it with dtype='float32'"
        )
    gap = difference(torch.cat(rows), want)
    limit = max(limit_of(dtype), int8_limit(metadata))
    if not gap <= limit:
        raise ConversionError(
            f"the bundle of {type(model).__name__} computes other logits than the model: they "
            f"differ by {gap:.2g} of the largest, the limit is {limit:.2g}\n"
            "  try   use a model class of transformers itself, whose masks and positions follow "
            "the cache; pass verify=False to skip this check"
        )
