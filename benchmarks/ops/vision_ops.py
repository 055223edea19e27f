"""Two ops of torchvision, defined with vectorized references: its kernels may not be installed."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_ROI_ALIGN = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"
)
_DEFORM = (
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor"
)


def _along(start: Tensor, size: Tensor, bins: int, samples: int, extent: int) -> Tensor:
    """Return the sample positions of each region along one axis, within the picture."""
    steps = (torch.arange(bins * samples) + 0.5) / (bins * samples)
    return (start[:, None] + steps * size[:, None]).clamp(0, extent - 1)


def _roi_align(
    picture: Tensor, rois: Tensor, scale: float, high: int, wide: int, samples: int, aligned: bool
) -> Tensor:
    """Pool regions that are inside the picture."""
    left, top, right, bottom = (rois[:, 1:] * scale - 0.5 * aligned).unbind(1)
    y = _along(top, bottom - top, high, samples, picture.shape[2])
    x = _along(left, right - left, wide, samples, picture.shape[3])
    y0, x0 = y.floor().long(), x.floor().long()
    dy, dx = (y - y0)[:, None, :, None], (x - x0)[:, None, None, :]
    y1 = (y0 + 1).clamp(max=picture.shape[2] - 1)
    x1 = (x0 + 1).clamp(max=picture.shape[3] - 1)

    def corner(rows: Tensor, columns: Tensor) -> Tensor:
        return picture[0][:, rows[:, :, None], columns[:, None, :]].transpose(0, 1)

    upper = corner(y0, x0) * (1 - dx) + corner(y0, x1) * dx
    lower = corner(y1, x0) * (1 - dx) + corner(y1, x1) * dx
    return functional.avg_pool2d(upper * (1 - dy) + lower * dy, samples)


def _deform(
    picture: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    *numbers: int,
) -> Tensor:
    """Convolve with stride and dilation one, one group and a mask."""
    padding = numbers[2]
    (height, width), (kh, kw) = picture.shape[2:], weight.shape[2:]
    rows = torch.arange(offset.shape[2])[:, None] - padding
    columns = torch.arange(offset.shape[3])[None] - padding
    result = bias[None, :, None, None].repeat(1, 1, *offset.shape[2:])
    for k in range(kh * kw):
        y = rows + k // kw + offset[:, 2 * k]
        x = columns + k % kw + offset[:, 2 * k + 1]
        grid = torch.stack([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)
        read = functional.grid_sample(picture, grid, align_corners=True) * mask[:, k : k + 1]
        result += torch.einsum("nchw,fc->nfhw", read, weight[:, :, k // kw, k % kw])
    return result


def define() -> torch.library.Library:
    """Register both ops, as torchvision would."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema, reference in ((_ROI_ALIGN, _roi_align), (_DEFORM, _deform)):
        library.define(schema)
        library.impl(schema.partition("(")[0], reference, "CompositeExplicitAutograd")
    torch.library.register_fake(
        "torchvision::roi_align",
        lambda x, r, s, h, w, n, a: x.new_empty(r.shape[0], x.shape[1], h, w),
        lib=library,
    )
    torch.library.register_fake(
        "torchvision::deform_conv2d",
        lambda x, w, o, *_: x.new_empty(x.shape[0], w.shape[0], *o.shape[2:]),
        lib=library,
    )
    return library


def pool(picture: Tensor, rois: Tensor) -> Tensor:
    """Pool regions of a feature map with a quarter of the image's size."""
    return torch.ops.torchvision.roi_align(picture, rois, 0.25, 7, 7, 2, False)


def deformed(picture: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
    """Convolve with moved positions, padded by one."""
    numbers = (1, 1, 1, 1, 1, 1, 1, 1, True)
    return torch.ops.torchvision.deform_conv2d(picture, weight, offset, mask, bias, *numbers)


def regions(count: int, size: int) -> Tensor:
    corner = torch.rand(count, 2) * size / 2 + 4
    return torch.cat([torch.zeros(count, 1), corner, corner + 8 + torch.rand(count, 2) * 100], 1)
