"""Tensors of a decoder in the layout of the Neural Engine, with tokens on the last axis.

The model computes with `[1, tokens, channels]` and, per head, with `[1, tokens, heads, width]` or
`[1, heads, tokens, width]`. They are stored as `[1, channels, 1, tokens]` (BC1S) and
`[1, heads, width, tokens]`, between which a reshape moves no data.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

# The axis of the stored tensor for each axis of the model's tensor.
FLAT = (0, 3, 1)
BY_TOKEN = (0, 3, 1, 2)
BY_HEAD = (0, 1, 3, 2)


class LayoutError(Exception):
    """An op cannot be computed in this layout."""


@dataclass(frozen=True)
class Placed:
    """A tensor of the model: the stored tensor, and the stored axis of each of the model's axes."""

    data: Tensor
    axes: tuple[int, ...]

    @property
    def last(self) -> int:
        """Return the stored axis of the model's last axis."""
        return self.axes[-1]

    @property
    def channels(self) -> Tensor:
        """Return `[1, channels, 1, tokens]`; heads are joined."""
        if self.axes not in (FLAT, BY_TOKEN, BY_HEAD):
            raise LayoutError(f"the axes {self.axes} are not those of channels or heads")
        if self.axes == FLAT:
            return self.data
        _, heads, width, tokens = self.data.shape
        return self.data.reshape(1, heads * width, 1, tokens)

    def with_data(self, data: Tensor) -> Placed:
        """Return another tensor in the same place."""
        return Placed(data, self.axes)

    def split(self, heads: int, width: int) -> Placed:
        """Return `[1, tokens, heads, width]`."""
        return Placed(self.data.reshape(1, heads, width, self.data.shape[3]), BY_TOKEN)

    def swapped(self, first: int, second: int) -> Placed:
        """Swap two axes of the model's tensor; the stored one is unchanged."""
        axes = list(self.axes)
        axes[first], axes[second] = axes[second], axes[first]
        return Placed(self.data, tuple(axes))

    def operand(self, other: Tensor) -> Tensor:
        """Return a constant that broadcasts against the stored tensor as it does in the model."""
        if other.dim() > len(self.axes):
            raise LayoutError(f"a constant of rank {other.dim()} is an operand")
        sizes = [1] * 4
        own = self.axes[len(self.axes) - other.dim() :]
        for size, axis in zip(other.shape, own, strict=True):
            sizes[axis] = size
        if sum(size != 1 for size in other.shape) > 1:
            raise LayoutError(f"a constant of shape {tuple(other.shape)} is an operand")
        return other.reshape(sizes) if other.dim() else other


def from_tokens(data: Tensor) -> Placed:
    """Place `[1, channels, 1, tokens]`."""
    return Placed(data, FLAT)


def from_positions(rows: Tensor, rank: int) -> Placed:
    """Place `[width, tokens]`, which is `[1, tokens, width]` or `[1, 1, tokens, width]`."""
    width, tokens = rows.shape
    if rank == 3:
        return Placed(rows.reshape(1, width, 1, tokens), FLAT)
    return Placed(rows.reshape(1, 1, width, tokens), BY_HEAD)
