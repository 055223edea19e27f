"""Caches that models of `transformers` write to while they are exported.

The model itself asks them for positions and builds its masks from that: causal, sliding, chunked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache


class _Layer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not followed by mypy
    """What all layers say of themselves."""

    is_compileable = True
    # Layers with a sliding window keep all positions too: the model's mask hides the old ones.
    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The tensors are there from the start."""


class StaticLayer(_Layer):
    """Buffers of a fixed length, written in place from a position on."""

    def __init__(self, keys: Tensor, values: Tensor, position: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.position = keys, values, position

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """The whole buffers, with the new rows in them; the mask hides what is stale."""
        at = torch.arange(key_states.shape[-2], device=self.position.device) + self.position
        self.keys.index_copy_(2, at, key_states)
        self.values.index_copy_(2, at, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The keys' length, and where it begins."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> Any:
        """As a tensor: it is known at run time only."""
        return self.position

    def get_max_length(self) -> int:
        """The length of the buffers."""
        return int(self.keys.shape[-2])


class GivenLayer(_Layer):
    """Keys and values that are there whole, or are taken once and given back as they are."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        super().__init__()
        self.keys, self.values = keys, values

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep what the model computed."""
        self.keys, self.values = key_states, value_states
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Nothing was there before the query."""
        return query_length, 0

    def get_seq_length(self) -> Any:
        """None before the first update."""
        return 0 if self.keys is None else self.keys.shape[-2]

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


def static_cache(pairs: Sequence[tuple[Tensor, Tensor]], position: Tensor) -> Cache:
    """A cache in buffers, with `position` tokens in it."""
    return Cache(layers=[StaticLayer(keys, values, position) for keys, values in pairs])


def cross_cache(own: Cache, crossed: Sequence[tuple[Tensor, Tensor]]) -> EncoderDecoderCache:
    """A decoder's own cache beside the keys and values of an encoded source."""
    return EncoderDecoderCache(own, Cache(layers=[GivenLayer(*pair) for pair in crossed]))


def collecting_cache(layers: int) -> EncoderDecoderCache:
    """Caches that are empty and keep what the decoder computes of an encoded source."""
    own, crossed = ([GivenLayer() for _ in range(layers)] for _ in range(2))
    return EncoderDecoderCache(Cache(layers=own), Cache(layers=crossed))
