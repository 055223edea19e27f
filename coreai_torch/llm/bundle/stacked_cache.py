"""A cache of `transformers` whose layers share two stacked tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..cache import CacheLayer
from .cache_ops import join_rows, write_rows
from .int8_cache import pack_rows, unpack_rows
from .states import LayerShape


def empty_states(
    layers: Sequence[LayerShape],
    slots: int,
    dtype: torch.dtype,
    *,
    more_layers: int = 0,
    columns: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return zeroed keys and values; smaller layers use a part of their place.

    Rows have more `columns`, and there are `more_layers`, if a bundle stores other numbers there.
    """
    heads = max(max(one.key_heads, one.value_heads) for one in layers)
    width = max(max(one.key_width, one.value_width) for one in layers) + columns
    shape = (len(layers) + more_layers, 1, heads, slots, width)
    return torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)


class StackedStates:
    """Both states, and the rows that the layers add to them."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self.new_keys: dict[int, Tensor] = {}
        self.new_values: dict[int, Tensor] = {}

    def write(self, offset: int, total: int, keys: Tensor, values: Tensor) -> None:
        """Write the new rows of all layers to the slots from `offset` to `total` of the states."""
        keys.copy_(_written(self.keys, self.new_keys, offset, total))
        values.copy_(_written(self.values, self.new_values, offset, total))


def _written(state: Tensor, rows: Mapping[int, Tensor], offset: int, total: int) -> Tensor:
    for first, count in _runs(rows):
        stacked = torch.stack([rows[layer] for layer in range(first, first + count)])
        state = write_rows(state, stacked, first, offset, total)
    return state


def _runs(rows: Mapping[int, Tensor]) -> Iterator[tuple[int, int]]:
    """Yield the first layer and the number of consecutive layers with rows of one shape."""

    def shape(layer: int) -> tuple[int, int] | None:
        return (rows[layer].shape[1], rows[layer].shape[3]) if layer in rows else None

    for first in sorted(rows):
        if shape(first - 1) != shape(first):
            count = 1
            while shape(first + count) == shape(first):
                count += 1
            yield first, count


class StackedLayer(CacheLayer):
    """One layer of stacked states: new rows go to the slots from `offset` to `total`.

    The model sees the slots before `total` only, so that the content of the others never matters.
    """

    def __init__(self, states: StackedStates, layer: int, offset: int, total: int) -> None:
        super().__init__()
        self.states, self.layer = states, layer
        self.offset, self.total = offset, total
        self.keys = self.values = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep the new rows for `StackedStates.write` and return all rows so far."""
        states, dtype = self.states, key_states.dtype
        keys = states.new_keys[self.layer] = _stored(key_states, states.keys)
        values = states.new_values[self.layer] = _stored(value_states, states.values)
        return self._joined(states.keys, keys, dtype), self._joined(states.values, values, dtype)

    def _joined(self, state: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
        joined = join_rows(state, rows, self.layer, self.offset, self.total)
        return unpack_rows(joined, dtype) if state.dtype == torch.int8 else joined

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of visible slots and the offset of the first one."""
        return self.total, 0

    def get_seq_length(self) -> int:
        """Return the number of tokens before the new ones."""
        return self.offset

    def get_max_length(self) -> int:
        """Return -1: the number of slots is dynamic."""
        return -1


def _stored(rows: Tensor, state: Tensor) -> Tensor:
    """Return rows as a state stores them."""
    return pack_rows(rows) if state.dtype == torch.int8 else rows.to(state.dtype)


def stacked_cache(states: StackedStates, layers: int, offset: int, total: int) -> Cache:
    """Return a cache that contains `offset` tokens and will contain `total`."""
    return Cache(layers=[StackedLayer(states, layer, offset, total) for layer in range(layers)])
