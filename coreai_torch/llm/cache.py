"""Cache classes that `transformers` models write to while they are exported.

The model queries the cache for positions and derives its masks from them: causal, sliding,
chunked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache


class CacheLayer(CacheLayerMixin):  # type: ignore[misc]  # mypy does not follow transformers
    """Common base of the cache layers."""

    is_compileable = True
    # Layers with a sliding window also keep all positions: the model's mask hides the old ones.
    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the tensors exist from the start."""


class StaticLayer(CacheLayer):
    """Buffers of a fixed length, updated in place from a given position."""

    def __init__(self, keys: Tensor, values: Tensor, position: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.position = keys, values, position

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new rows and return the full buffers; the mask hides stale rows."""
        indices = torch.arange(key_states.shape[-2], device=self.position.device) + self.position
        self.keys.index_copy_(2, indices, key_states)
        self.values.index_copy_(2, indices, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of the keys and the offset of the first one."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> Any:
        """Return the number of cached tokens as a tensor: it is known at run time only."""
        return self.position

    def get_max_length(self) -> int:
        """Return the length of the buffers."""
        return int(self.keys.shape[-2])


class FixedLayer(CacheLayer):
    """Keys and values that are computed once (given, or stored by the first update)."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        super().__init__()
        self.keys, self.values = keys, values

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values that the model computed."""
        self.keys, self.values = key_states, value_states
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the query's length: no token precedes it."""
        return query_length, 0

    def get_seq_length(self) -> Any:
        """Return the number of stored tokens, 0 before the first update."""
        return 0 if self.keys is None else self.keys.shape[-2]

    def get_max_length(self) -> int:
        """Return -1: there is no maximum."""
        return -1


def static_cache(pairs: Sequence[tuple[Tensor, Tensor]], position: Tensor) -> Cache:
    """Return a cache over buffers that already contains `position` tokens."""
    return Cache(layers=[StaticLayer(keys, values, position) for keys, values in pairs])


def cross_cache(
    self_cache: Cache, cross_pairs: Sequence[tuple[Tensor, Tensor]]
) -> EncoderDecoderCache:
    """Combine the decoder's own cache with the keys and values of an encoded source."""
    return EncoderDecoderCache(self_cache, Cache(layers=[FixedLayer(*p) for p in cross_pairs]))


def collecting_cache(layers: int) -> EncoderDecoderCache:
    """Return an empty cache that stores what the decoder computes from an encoded source."""
    self_layers, cross_layers = ([FixedLayer() for _ in range(layers)] for _ in range(2))
    return EncoderDecoderCache(Cache(layers=self_layers), Cache(layers=cross_layers))
