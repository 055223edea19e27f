"""Compare the exported steps with the model: a cache in buffers must not change its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ConversionError
from ..numerics.tolerance import DECODER_STEP, limits

LENGTH = 12  # tokens of the check prompt, fewer if the cache is shorter

LIMITS = limits(DECODER_STEP)


def trial(batch: int, max_length: int, vocabulary: int) -> Tensor:
    """Return a reproducible random prompt."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocabulary, (batch, min(LENGTH, max_length)), generator=generator)


def check_steps(
    model: Any, programs: dict[str, Any], tokens: Tensor, extra_args: Sequence[Any], want: Tensor
) -> None:
    """Run `prefill` on all tokens and `decode` token by token, and compare both with `want`.

    `want` contains the model's own logits after the last token. `extra_args` are the remaining
    arguments of both steps.
    """
    prefill, decode = (programs[name].module() for name in ("prefill", "decode"))
    _check(model, "prefill", prefill(tokens, torch.tensor([0]), *extra_args), want)
    for position, token in enumerate(tokens.split(1, 1)):
        logits = decode(token, torch.tensor([position]), *extra_args)
    _check(model, "decode", logits, want)


def check_encoded(model: Any, actual: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    """Compare the keys and values of an encoded source, in order."""
    for one, other in zip(actual, want, strict=True):
        _check(model, "encode", one, other)


def _check(model: Any, entrypoint: str, actual: Tensor, want: Tensor) -> None:
    """Raise if `actual` differs from the model's own result."""
    difference, largest = float((actual - want).abs().max()), float(want.abs().max())
    # Written so that a NaN difference fails, too.
    if not difference <= LIMITS[want.dtype] * largest:
        raise ConversionError(
            f"{type(model).__name__} computes other numbers with a cache of fixed length: "
            f"{entrypoint} differs by {difference:.2g}, the largest value is {largest:.2g}\n"
            "  try   use a model class of transformers itself, whose masks and positions follow "
            "the cache; pass verify=False to skip this check"
        )
