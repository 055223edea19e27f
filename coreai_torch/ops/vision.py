"""Decompose torchvision's ops, registered by name: torchvision may not be installed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import ConversionError
from ..lowering import decomposes
from .nn.grid_sample import Source, linear

while_loop = torch.ops.higher_order.while_loop
_FAR = 2**31 - 1  # greater than any box index
_LOWEST = torch.finfo(torch.float32).min


@decomposes("torchvision::nms")
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Keep a box unless a kept box with a higher score overlaps it; the best first.

    Each step keeps the best remaining box and drops the boxes that it overlaps. The number of
    steps is the number of kept boxes, and no table of all pairs is needed.
    """
    threshold = _largest_float32(iou_threshold)
    order = torch.sort(scores, stable=True, descending=True)[1]
    x1, y1, x2, y2 = dets.index_select(0, order).unbind(1)
    area = (x2 - x1) * (y2 - y1)
    rank = torch.arange(order.shape[0], device=order.device)
    given = tuple(v.clone() for v in (rank, x1, y1, x2, y2, area))

    def any_left(left: Tensor, kept: Tensor, *given: Tensor) -> Tensor:
        return left.any()

    def keep_best(left: Tensor, kept: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        rank, x1, y1, x2, y2, area = given
        best = torch.where(left, rank, _FAR).amin(0, keepdim=True)
        a1, b1, a2, b2, own = (v.index_select(0, best) for v in given[1:])
        wide = torch.minimum(a2, x2) - torch.maximum(a1, x1)
        high = torch.minimum(b2, y2) - torch.maximum(b1, y1)
        shared = wide.clamp(min=0) * high.clamp(min=0)
        over = shared / (own + area - shared) > threshold
        here = rank == best
        return left & torch.logical_not(over | here), kept | here

    everything = torch.ones_like(scores, dtype=torch.bool)
    nothing = torch.zeros_like(scores, dtype=torch.bool)
    _, kept = while_loop(any_left, keep_best, (everything, nothing), given)
    return order.index_select(0, kept.nonzero()[:, 0])


def _largest_float32(number: float) -> float:
    """Return the largest float32 that is not above a number.

    Torchvision compares float32 overlaps with a float64 threshold: 0.2f > 0.2. A float32 is above
    the number if and only if it is above this one.
    """
    nearest = np.float32(number)  # not a tensor, which would be traced
    return float(np.nextafter(nearest, np.float32(-np.inf)) if float(nearest) > number else nearest)


def _edges(rois: Tensor, scale: float, offset: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return top, left, height and width of each region in image coordinates."""
    x1, y1, x2, y2 = (rois[:, i] * scale - offset for i in range(1, 5))
    return y1, x1, y2 - y1, x2 - x1


def _samples(start: Tensor, length: Tensor, bins: int, per_bin: int) -> Tensor:
    """Return sample positions along one axis: [region, bin, sample]."""
    cell = (length / bins)[:, None, None]
    number = torch.arange(bins, device=start.device)[:, None]
    within = (torch.arange(per_bin, device=start.device) + 0.5) / per_bin
    return start[:, None, None] + (number + within) * cell


def _sampled(input: Tensor, owner: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Interpolate the images: [region, bin, sample, bin, sample, channel].

    `owner` is the image of each region, or of each of its bins: [region, bin, 1, bin, 1].
    Samples up to one pixel outside have the border's value, samples farther outside are zero.
    """
    height, width = input.shape[2:]
    down, across = y[:, :, :, None, None], x[:, None, None, :, :]
    near = (down >= -1) & (down <= height) & (across >= -1) & (across <= width)
    picture = owner.to(input.dtype)
    down, across = down.clamp(0, height - 1), across.clamp(0, width - 1)
    places = torch.broadcast_tensors(down, across, picture)
    found = linear(Source(input), places[:2], places[2].long())
    return torch.where(near.unsqueeze(-1), found, 0.0)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _fixed(sampling_ratio: int) -> int:
    """Return a positive ratio; the default (samples = pixels per bin) depends on the region."""
    if sampling_ratio <= 0:
        raise ConversionError(
            f"sampling_ratio={sampling_ratio} takes a number of samples that depends on the "
            "regions\n  try   sampling_ratio=2, or another number"
        )
    return sampling_ratio


@decomposes("torchvision::roi_align")
def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    picture, regions, count = _wide(input), _wide(rois), _fixed(sampling_ratio)
    top, left, height, width = _edges(regions, spatial_scale, 0.5 if aligned else 0.0)
    if not aligned:
        height, width = height.clamp(min=1), width.clamp(min=1)
    y = _samples(top, height, pooled_height, count)
    x = _samples(left, width, pooled_width, count)
    owner = regions[:, 0, None, None, None, None]
    found = _sampled(picture, owner, y, x).sum((2, 4)) / (count * count)
    return found.permute(0, 3, 1, 2).to(input.dtype)


@decomposes("torchvision::ps_roi_align")
def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """Average samples of a separate group of channels for each bin; return also the channels."""
    regions, count = _wide(rois), _fixed(sampling_ratio)
    top, left, height, width = _edges(regions, spatial_scale, 0.5)
    y = _samples(top, height, pooled_height, count)
    x = _samples(left, width, pooled_width, count)
    batch, channels, *extents = input.shape
    bins, kept = pooled_height * pooled_width, channels // (pooled_height * pooled_width)
    planes = _wide(input).reshape(batch, kept, bins, *extents).transpose(1, 2)
    planes = planes.reshape(batch * bins, kept, *extents)
    number = torch.arange(bins, device=input.device).reshape(pooled_height, pooled_width)
    owner = regions[:, 0, None, None, None, None] * bins + number[:, None, :, None]
    found = _sampled(planes, owner, y, x).sum((2, 4)) / (count * count)
    channel = torch.arange(kept, device=input.device)[:, None, None] * bins + number
    mapping = channel.expand(rois.shape[0], *channel.shape).to(torch.int32)
    return found.permute(0, 3, 1, 2).to(input.dtype), mapping


def _half_up(x: Tensor) -> Tensor:
    """Round like C's `round`: halves away from zero."""
    return torch.where(x < 0, -torch.floor(0.5 - x), torch.floor(x + 0.5))


def _bins(start: Tensor, length: Tensor, bins: int, extent: int) -> Spans:
    """Return the positions of each bin of each region: [region, bin]."""
    cell = (length / bins)[:, None]
    number = torch.arange(bins, device=start.device).to(start.dtype)
    first = torch.floor(number * cell) + start[:, None]
    end = torch.ceil((number + 1) * cell) + start[:, None]
    return Spans(first.clamp(0, extent).long(), end.clamp(0, extent).long())


def _inside(span: Spans, extent: int) -> Tensor:
    """Return a mask of the positions in each bin of each region: [region, bin, position]."""
    place = torch.arange(extent, device=span.first.device)
    return (place >= span.first[..., None]) & (place < span.end[..., None])


def _greatest_of_all(pictures: Tensor, owner: Tensor, rows: Spans, columns: Spans) -> Found:
    """Return the same as `greatest_in_bins` for a dynamic size, from a table of bins and pixels."""
    height, width = pictures.shape[2:]
    down, across = _inside(rows, height), _inside(columns, width)
    cells = pictures.index_select(0, owner)[:, :, None, None]
    inside = down[:, None, :, None, :, None] & across[:, None, None, :, None, :]
    greatest = torch.where(inside, cells, _LOWEST).amax((4, 5), keepdim=True)
    numbers = torch.arange(height * width, device=pictures.device).reshape(height, width)
    place = torch.where(inside & (cells == greatest), numbers, height * width).amin((4, 5))
    return Found(greatest[..., 0, 0], place)


@decomposes("torchvision::roi_pool")
def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Return the maximum of each bin and its index; an empty bin gives 0 and -1.

    Elements that do not exceed the lowest float are ignored, including NaN.
    """
    x1, y1, x2, y2 = (_half_up(_wide(rois)[:, i] * spatial_scale) for i in range(1, 5))
    height, width = input.shape[2:]
    rows = _bins(y1, (y2 - y1 + 1).clamp(min=1), pooled_height, height)
    columns = _bins(x1, (x2 - x1 + 1).clamp(min=1), pooled_width, width)
    pictures = torch.where(input.isnan(), _LOWEST, _wide(input)).clamp(min=_LOWEST)
    fixed = isinstance(height, int) and isinstance(width, int)
    find = greatest_in_bins if fixed else _greatest_of_all
    value, place = find(pictures, rois[:, 0].long(), rows, columns)
    filled = (rows.end > rows.first)[:, None, :, None] & (columns.end > columns.first)[
        :, None, None
    ]
    place = torch.where(filled & (value > _LOWEST), place, -1)
    return torch.where(filled, value, 0.0).to(input.dtype), place.to(torch.int32)


@decomposes("torchvision::deform_conv2d")
def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Convolve with taps moved by offsets and read by linear interpolation; zero outside."""
    batch, _, height, width = input.shape
    features, _, kernel_h, kernel_w = weight.shape
    taps, (out_h, out_w) = kernel_h * kernel_w, offset.shape[2:]
    picture = _wide(input).reshape(batch * offset_groups, -1, height, width)
    moved = _wide(offset).reshape(batch * offset_groups, taps, 2, out_h, out_w)
    rows = torch.arange(out_h, device=input.device) * stride_h - pad_h
    columns = torch.arange(out_w, device=input.device) * stride_w - pad_w
    down = (torch.arange(kernel_h, device=input.device) * dilation_h).repeat_interleave(kernel_w)
    across = (torch.arange(kernel_w, device=input.device) * dilation_w).repeat(kernel_h)
    y = moved[:, :, 0] + (down[:, None] + rows)[:, :, None]
    x = moved[:, :, 1] + (across[:, None] + columns)[:, None, :]
    found = linear(Source(picture), (y, x))  # [picture, tap, row, column, channel]
    if use_mask:
        found = found * _wide(mask).reshape(*y.shape, 1)
    columns_of = found.permute(0, 4, 1, 2, 3).reshape(batch, groups, -1, out_h * out_w)
    kernel = _wide(weight).reshape(groups, features // groups, -1)
    result = torch.matmul(kernel, columns_of).reshape(batch, features, out_h, out_w)
    return (result + _wide(bias)[:, None, None]).to(input.dtype)


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
