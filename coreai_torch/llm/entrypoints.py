"""The functions of a program that generates, as modules that can be exported.

They hold the model as it is; its cache lies in buffers, which become states of the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from . import cache

Pair: TypeAlias = "tuple[Tensor, Tensor]"


def paired(tensors: Sequence[Tensor]) -> list[Pair]:
    """Keys and values that were listed one after the other."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def listed(kinds: Sequence[str], layers: int) -> list[str]:
    """The names of keys and values, layer after layer."""
    return [f"{kind}_{number}" for number in range(layers) for kind in kinds]


class _Cached(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A model and the buffers of its cache."""

    def __init__(self, model: nn.Module, pairs: Sequence[Pair], max_length: int) -> None:
        """`pairs` are keys and values of one token, in each layer."""
        super().__init__()
        self.model = model
        self.states = listed(("keys", "values"), len(pairs))
        for name, one in zip(self.states, (one for pair in pairs for one in pair), strict=True):
            batch, heads, _, width = one.shape
            self.register_buffer(name, one.new_zeros(batch, heads, max_length, width))
        # Logits of the other positions would be computed for nothing.
        takes = inspect.signature(model.forward).parameters
        self.flags = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

    def cache(self, position: Tensor) -> Any:
        """The buffers as a cache with `position` tokens in it."""
        tensors = [self.get_buffer(name) for name in self.states]
        return cache.static_cache(paired(tensors), position.reshape(()))


class Step(_Cached):
    """Tokens from a position on to the logits after the last of them."""

    def forward(self, input_ids: Tensor, position: Tensor) -> Tensor:
        """Of a model that is a decoder alone."""
        held = self.cache(position)
        made = self.model(input_ids=input_ids, past_key_values=held, use_cache=True, **self.flags)
        return made.logits[:, -1]


class CrossStep(_Cached):
    """The same for a decoder behind an encoder, whose keys and values are inputs."""

    def forward(
        self,
        input_ids: Tensor,
        position: Tensor,
        crossed: list[Tensor],
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """`attention_mask` is that of the source."""
        keys = crossed[0]
        # Only the shape is read: keys and values are there already.
        stand_in = keys.new_zeros(keys.shape[0], keys.shape[2], 1)
        made = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=stand_in),
            attention_mask=attention_mask,
            past_key_values=cache.cross_cache(self.cache(position), paired(crossed)),
            use_cache=True,
            **self.flags,
        )
        return made.logits[:, -1]


class Encode(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A source to the keys and values that the decoder's layers read of it."""

    def __init__(self, model: Any, layers: int) -> None:
        super().__init__()
        self.model, self.layers = model, layers

    def forward(self, source: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """Keys and values, layer after layer.

        The decoder runs for a token that nobody reads: it knows how its layers project a source.
        What it computes beside that is dead, and is not converted.
        """
        masked = {} if attention_mask is None else {"attention_mask": attention_mask}
        encoded = self.model.get_encoder()(source, **masked)
        held = cache.collecting_cache(self.layers)
        self.model(
            decoder_input_ids=torch.zeros(source.shape[0], 1, dtype=torch.long),
            encoder_outputs=encoded,
            past_key_values=held,
            use_cache=True,
            **masked,
        )
        layers = held.cross_attention_cache.layers
        return [one for layer in layers for one in (layer.keys, layer.values)]
