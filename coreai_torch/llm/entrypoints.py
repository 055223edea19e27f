"""Modules for the entry points of a generation program.

They wrap the unmodified model. Its cache is stored in buffers, which become states of the program.
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
    """Group alternating keys and values into pairs."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def layer_names(kinds: Sequence[str], layers: int) -> list[str]:
    """Return the names of keys and values, layer by layer."""
    return [f"{kind}_{number}" for number in range(layers) for kind in kinds]


class _Cached(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A model with the buffers of its cache."""

    def __init__(self, model: nn.Module, pairs: Sequence[Pair], max_length: int) -> None:
        """Allocate buffers; `pairs` contains the keys and values of one token for each layer."""
        super().__init__()
        self.model = model
        self.states = layer_names(("keys", "values"), len(pairs))
        tensors = (tensor for pair in pairs for tensor in pair)
        for name, tensor in zip(self.states, tensors, strict=True):
            batch, heads, _, width = tensor.shape
            self.register_buffer(name, tensor.new_zeros(batch, heads, max_length, width))
        # Skip the logits of the other positions: nothing reads them.
        parameters = inspect.signature(model.forward).parameters
        self.flags = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}

    def cache(self, position: Tensor) -> Any:
        """Return the buffers as a cache that contains `position` tokens."""
        tensors = [self.get_buffer(name) for name in self.states]
        return cache.static_cache(paired(tensors), position.reshape(()))


class Step(_Cached):
    """Step of a decoder-only model: tokens from a position to the logits after the last one."""

    def forward(self, input_ids: Tensor, position: Tensor) -> Tensor:
        """Return the logits after the last token."""
        output = self.model(
            input_ids=input_ids,
            past_key_values=self.cache(position),
            use_cache=True,
            **self.flags,
        )
        return output.logits[:, -1]


class CrossStep(_Cached):
    """Step of a decoder with an encoder; the encoder's keys and values are inputs."""

    def forward(
        self,
        input_ids: Tensor,
        position: Tensor,
        crossed: list[Tensor],
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the logits after the last token; `attention_mask` belongs to the source."""
        keys = crossed[0]
        # The model reads only the shape: the keys and values are already computed.
        placeholder = keys.new_zeros(keys.shape[0], keys.shape[2], 1)
        output = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=placeholder),
            attention_mask=attention_mask,
            past_key_values=cache.cross_cache(self.cache(position), paired(crossed)),
            use_cache=True,
            **self.flags,
        )
        return output.logits[:, -1]


class Encode(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Encoder step: a source to the keys and values that the decoder's layers read from it."""

    def __init__(self, model: Any, layers: int) -> None:
        super().__init__()
        self.model, self.layers = model, layers

    def forward(self, source: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """Return keys and values, layer by layer.

        The decoder runs for one dummy token, because only it knows how its layers project the
        source. The rest of its computation is dead code and is not converted.
        """
        mask = {} if attention_mask is None else {"attention_mask": attention_mask}
        encoded = self.model.get_encoder()(source, **mask)
        collected = cache.collecting_cache(self.layers)
        self.model(
            decoder_input_ids=torch.zeros(source.shape[0], 1, dtype=torch.long),
            encoder_outputs=encoded,
            past_key_values=collected,
            use_cache=True,
            **mask,
        )
        layers = collected.cross_attention_cache.layers
        return [tensor for layer in layers for tensor in (layer.keys, layer.values)]
