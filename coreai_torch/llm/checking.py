"""Holds the exported steps to the model: a cache in buffers must not change its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ConversionError

LENGTH = 12  # tokens of a trial, or as many as the cache has places

# Of the largest logit. The sums of float32 are added in another order; halves are rounded at other
# places, since attention over a whole cache is another kernel of torch than attention over a few.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
HALF = 5e-2


def trial(batch: int, places: int, vocabulary: int) -> Tensor:
    """Tokens to try, the same ones each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocabulary, (batch, min(LENGTH, places)), generator=generator)


def check_steps(
    model: Any, programs: dict[str, Any], tokens: Tensor, beside: Sequence[Any], want: Tensor
) -> None:
    """Run `prefill` on all tokens and `decode` on one after the other.

    `want` are the model's own logits after the last of them; `beside` is what both take besides.
    """
    prefill, decode = (programs[name].module() for name in ("prefill", "decode"))
    _check(model, "prefill", prefill(tokens, torch.tensor([0]), *beside), want)
    for position, token in enumerate(tokens.split(1, 1)):
        made = decode(token, torch.tensor([position]), *beside)
    _check(model, "decode", made, want)


def check_encoded(model: Any, made: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    """Keys and values of a source, in their order."""
    for one, other in zip(made, want, strict=True):
        _check(model, "encode", one, other)


def _check(model: Any, entrypoint: str, made: Tensor, want: Tensor) -> None:
    """Refuse what is not the model's."""
    difference, largest = float((made - want).abs().max()), float(want.abs().max())
    if not difference <= TOLERANCE.get(want.dtype, HALF) * largest:  # nor NaN
        raise ConversionError(
            f"{type(model).__name__} with a cache of fixed length does not give its own numbers: "
            f"{entrypoint} is off by {difference:.2g}, the largest is {largest:.2g}\n"
            "  try   transformers' own model class, whose masks and positions follow the cache; "
            "verify=False converts it as it is"
        )
