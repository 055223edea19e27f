"""Sizes of the keys and values of one layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LayerShape:
    """Sizes of the keys and values of one layer."""

    key_heads: int
    key_width: int
    value_heads: int
    value_width: int

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> LayerShape:
        """Read the sizes from tensors `[batch, heads, length, width]`."""
        return cls(keys.shape[1], keys.shape[3], values.shape[1], values.shape[3])
