"""The functions of a program that generates, as modules that can be exported.

They hold the model as it is; its cache lies in buffers, which become states of the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

from . import cache

Pair: TypeAlias = "tuple[Tensor, Tensor]"


def paired(tensors: Sequence[Tensor]) -> list[Pair]:
    """Keys and values that were listed one after the other."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))


class Step(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Tokens from a position on to the logits after the last of them."""

    def __init__(self, model: nn.Module, pairs: Sequence[Pair], max_length: int) -> None:
        """`pairs` are keys and values of one token, in each layer."""
        super().__init__()
        self.model = model
        self.layers = len(pairs)
        for number, pair in enumerate(pairs):
            for kind, one in zip(("keys", "values"), pair, strict=True):
                batch, heads, _, width = one.shape
                buffer = one.new_zeros(batch, heads, max_length, width)
                self.register_buffer(f"{kind}_{number}", buffer)
        # Logits of the other positions would be computed for nothing.
        takes = inspect.signature(model.forward).parameters
        self.flags = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

    @property
    def states(self) -> list[str]:
        """The names of the buffers, in their order."""
        return [f"{kind}_{number}" for number in range(self.layers) for kind in ("keys", "values")]

    def cache(self, position: Tensor) -> Any:
        """The buffers as a cache with `position` tokens in it."""
        tensors = [self.get_buffer(name) for name in self.states]
        return cache.static_cache(paired(tensors), position.reshape(()))

    def forward(self, input_ids: Tensor, position: Tensor) -> Tensor:
        """Of a model that is a decoder alone."""
        held = self.cache(position)
        made = self.model(input_ids=input_ids, past_key_values=held, use_cache=True, **self.flags)
        return made.logits[:, -1]
