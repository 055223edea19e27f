"""Find the greatest element in each of many rectangles of an image (sparse table).

The greatest element of any rectangle is that of four rectangles whose sides are powers of two.
Those of one height and all widths are stored at a time: for an image of n pixels, the time is
n log² n, and the memory n log n.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Found(NamedTuple):
    """Values, and the number of the first pixel in its image that has it."""

    value: Tensor
    place: Tensor

    def better(self, other: Found) -> Found:
        """Return the greater ones, and of equal ones the first; values do not depend on places."""
        first = (self.value == other.value) & (self.place < other.place)
        keeps = (self.value > other.value) | first
        place = torch.where(keeps, self.place, other.place)
        return Found(torch.maximum(self.value, other.value), place)


class Spans(NamedTuple):
    """The first position and the one after the last, of each bin of each region."""

    first: Tensor
    end: Tensor

    def level(self, extent: int) -> Tensor:
        """Return the exponent of the greatest power of two that fits into a span."""
        length = self.end - self.first
        powers = [length >= 2**n for n in range(1, _levels(extent))]
        return torch.stack([torch.zeros_like(length), *(p.to(length.dtype) for p in powers)]).sum(0)


def greatest_in_bins(pictures: Tensor, owner: Tensor, rows: Spans, columns: Spans) -> Found:
    """Return the greatest of each bin: [region, channel, row, column].

    `owner` is the picture of each region. The result for empty bins is arbitrary.
    """
    count, _, height, width = pictures.shape
    down, across = rows.level(height), columns.level(width)
    plane = ((across * count + owner[:, None]) * height)[:, None, :]
    places = [columns.first, columns.end - 2**across]
    table, found = _numbered(pictures), []
    for level in range(_levels(height)):
        if level:
            table = _doubled(table, 1, 2 ** (level - 1))
        widths = _all_widths(table)
        lines = [rows.first, rows.end - 2**level]
        corners = [
            _read(widths, (plane + y[:, :, None]) * width + x[:, None, :])
            for y in lines
            for x in places
        ]
        found.append(corners[0].better(corners[1]).better(corners[2].better(corners[3])))
    best = found[0]
    for level, other in enumerate(found[1:], 1):
        chosen = (down == level)[:, :, None, None]
        best = Found(*(torch.where(chosen, a, b) for a, b in zip(other, best, strict=True)))
    return Found(*(x.permute(0, 3, 1, 2) for x in best))


def _levels(extent: int) -> int:
    return extent.bit_length()


def _numbered(pictures: Tensor) -> Found:
    """Return the pixels with channels last, and their numbers."""
    height, width = pictures.shape[2:]
    value = pictures.permute(0, 2, 3, 1)
    number = torch.arange(height * width, device=value.device).reshape(height, width, 1)
    return Found(value, number.expand(value.shape))


def _doubled(table: Found, axis: int, step: int) -> Found:
    """Return the better of each element and the one `step` behind it; the last ones are unused."""
    moved = (torch.roll(x, -step, axis) for x in table)
    return table.better(Found(*moved))


def _all_widths(table: Found) -> Found:
    """Return the rows of channels of all widths, one width after another."""
    wide = [table]
    for level in range(1, _levels(table.value.shape[2])):
        wide.append(_doubled(wide[-1], 2, 2 ** (level - 1)))
    return Found(*(torch.stack(x).flatten(0, 3) for x in zip(*wide, strict=True)))


def _read(rows: Found, index: Tensor) -> Found:
    """Return the rows at indices; those of bins of another height may be out of bounds."""
    flat = index.reshape(-1).clamp(0, rows.value.shape[0] - 1)
    return Found(*(x.index_select(0, flat).reshape(*index.shape, -1) for x in rows))
