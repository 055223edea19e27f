"""A cache of `transformers` whose layers share two stacked tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

from ..cache import CacheLayer
from .cache_ops import read_rows, write_rows
from .layer_shape import LayerShape


class StackedStates:
    """The current values of both states; each write replaces them."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values


class StackedLayer(CacheLayer):
    """One layer of stacked states: new rows go to the slots from `offset` to `total`.

    The model sees the slots before `total` only, so that the content of the others never matters.
    """

    def __init__(
        self, states: StackedStates, layer: int, shape: LayerShape, offset: int, total: int
    ) -> None:
        super().__init__()
        self.states, self.layer, self.shape = states, layer, shape
        self.offset, self.total = offset, total
        self.keys = self.values = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new rows and return all rows so far."""
        states, layer, shape = self.states, self.layer, self.shape
        span = (layer, self.offset, self.total)
        states.keys = write_rows(states.keys, key_states.to(states.keys.dtype), *span)
        states.values = write_rows(states.values, value_states.to(states.values.dtype), *span)
        return (
            read_rows(states.keys, layer, self.total, shape.key_heads, shape.key_width),
            read_rows(states.values, layer, self.total, shape.value_heads, shape.value_width),
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of visible slots and the offset of the first one."""
        return self.total, 0

    def get_seq_length(self) -> int:
        """Return the number of tokens before the new ones."""
        return self.offset

    def get_max_length(self) -> int:
        """Return -1: the number of slots is dynamic."""
        return -1


def stacked_cache(
    states: StackedStates, layers: Sequence[LayerShape], offset: int, total: int
) -> Cache:
    """Return a cache that contains `offset` tokens and will contain `total`."""
    return Cache(
        layers=[StackedLayer(states, n, one, offset, total) for n, one in enumerate(layers)]
    )
