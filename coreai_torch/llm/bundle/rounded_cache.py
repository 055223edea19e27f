"""A decoder in torch that rounds its keys and values as an int8 cache does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from .int8_cache import pack_rows, unpack_rows


class _RoundedLayer(DynamicLayer):  # type: ignore[misc]  # mypy does not follow transformers
    """A growing layer whose rows are rounded to 8 bits."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append rounded rows and return all rows so far."""
        new = (unpack_rows(pack_rows(one), one.dtype) for one in (key_states, value_states))
        found: tuple[Tensor, Tensor] = super().update(*new, *args, **kwargs)
        return found


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
        output = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        return SimpleNamespace(logits=output.logits)
