"""A cache of `transformers` whose layers share two stacked tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..cache import CacheLayer
from .cache_ops import read_rows, write_rows
from .int8_cache import COLUMNS, pack_rows, unpack_rows
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
        states, shape = self.states, self.shape
        states.keys = self._write(states.keys, key_states)
        states.values = self._write(states.values, value_states)
        dtype = key_states.dtype
        return (
            self._read(states.keys, shape.key_heads, shape.key_width, dtype),
            self._read(states.values, shape.value_heads, shape.value_width, dtype),
        )

    def _write(self, state: Tensor, rows: Tensor) -> Tensor:
        stored = pack_rows(rows) if state.dtype == torch.int8 else rows.to(state.dtype)
        return write_rows(state, stored, self.layer, self.offset, self.total)

    def _read(self, state: Tensor, heads: int, width: int, dtype: torch.dtype) -> Tensor:
        if state.dtype != torch.int8:
            return read_rows(state, self.layer, self.total, heads, width)
        packed = read_rows(state, self.layer, self.total, heads, width + COLUMNS)
        return unpack_rows(packed, dtype)

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
