"""A decoder in torch that rounds its keys and values as an int8 cache does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from .int8_cache import pack_rows, unpack_rows


class _RoundedLayer(DynamicLayer):  # type: ignore[misc]  # mypy does not follow transformers
    """A growing layer whose rows are rounded to 8 bits."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append rounded rows and return all rows so far."""
        found: tuple[Tensor, Tensor] = _rounding(super().update)(
            key_states, value_states, *args, **kwargs
        )
        return found


def _with_rounded_rows(cache: Cache) -> Cache:
    """Return the cache of a hybrid model whose keys and values are rounded, but no other state."""
    for layer in cache.layers:
        if isinstance(layer, DynamicLayer):
            layer.update = _rounding(layer.update)
    return cache


def _rounding(update: Any) -> Any:
    def rounded(keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        new = (unpack_rows(pack_rows(one), one.dtype) for one in (keys, values))
        return update(*new, *args, **kwargs)

    return rounded


class RoundedCacheModel(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A decoder in torch whose keys and values are rounded as in an int8 cache."""

    def __init__(self, model: Any) -> None:
        """Wrap a decoder of transformers; it is not changed."""
        super().__init__()
        self.model = model

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the model."""
        found: torch.dtype = self.model.dtype
        return found

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        """Return the logits of all tokens."""
        cache = Cache(layer_class_to_replicate=_RoundedLayer)
        made = DynamicCache(config=self.model.config)
        if not all(isinstance(one, DynamicLayer) for one in made.layers):
            cache = _with_rounded_rows(made)
        output = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        return SimpleNamespace(logits=output.logits)
