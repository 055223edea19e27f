"""Compare the ops of torchvision with loops written from their definitions.

The library is not needed: lowerings are registered by name, and the test defines the ops.
"""

from __future__ import annotations

import itertools
import math

import pytest
import runtime
import torch
from case_runner import compare

import coreai_torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def _define(schema, reference, fake):
    name = schema.split("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, reference, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torchvision::{name}", fake, lib=_LIBRARY)


def _iou(a, b):
    wide = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    high = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    area = [(p[2] - p[0]) * (p[3] - p[1]) for p in (a, b)]
    return wide * high / (sum(area) - wide * high)


def _nms(dets, scores, iou_threshold):
    kept = []
    for i in torch.sort(scores, stable=True, descending=True)[1].tolist():
        # The library compares the float32 overlap with a float64 threshold.
        if all(float(_iou(dets[i], dets[k])) <= iou_threshold for k in kept):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def _some(dets, scores, iou_threshold):
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _between(picture, y, x):
    """Sample one channel bilinearly, as region pooling does."""
    height, width = picture.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    low, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy, dx = y - top, x - left
    upper = (1 - dx) * picture[top, left] + dx * picture[top, right]
    return (1 - dy) * upper + dy * ((1 - dx) * picture[low, left] + dx * picture[low, right])


def _roi_align(input, rois, spatial_scale, high, wide, samples, aligned):
    result = torch.zeros(len(rois), input.shape[1], high, wide)
    for r, c, i, j in itertools.product(*map(range, result.shape)):
        x1, y1, x2, y2 = (v.item() * spatial_scale - 0.5 * aligned for v in rois[r, 1:])
        height, width = y2 - y1, x2 - x1
        if not aligned:
            height, width = max(height, 1), max(width, 1)
        for a, b in itertools.product(range(samples), repeat=2):
            y = y1 + (i + (a + 0.5) / samples) * height / high
            x = x1 + (j + (b + 0.5) / samples) * width / wide
            result[r, c, i, j] += _between(input[int(rois[r, 0]), c], y, x) / samples**2
    return result


def _ps_roi_align(input, rois, spatial_scale, high, wide, samples):
    channels = input.shape[1] // (high * wide)
    result = torch.zeros(len(rois), channels, high, wide)
    mapping = torch.zeros(result.shape, dtype=torch.int32)
    for r, c, i, j in itertools.product(*map(range, result.shape)):
        x1, y1, x2, y2 = (v.item() * spatial_scale - 0.5 for v in rois[r, 1:])
        mapping[r, c, i, j] = channel = (c * high + i) * wide + j
        for a, b in itertools.product(range(samples), repeat=2):
            y = y1 + (i + (a + 0.5) / samples) * (y2 - y1) / high
            x = x1 + (j + (b + 0.5) / samples) * (x2 - x1) / wide
            result[r, c, i, j] += _between(input[int(rois[r, 0]), channel], y, x) / samples**2
    return result, mapping


def _round(x):
    return math.floor(x + 0.5) if x >= 0 else -math.floor(0.5 - x)


def _roi_pool(input, rois, spatial_scale, high, wide):
    shape = (len(rois), input.shape[1], high, wide)
    value, place = torch.zeros(shape), torch.full(shape, -1, dtype=torch.int32)
    height, width = input.shape[2:]
    for r, c, i, j in itertools.product(*map(range, shape)):
        x1, y1, x2, y2 = (_round(v.item() * spatial_scale) for v in rois[r, 1:])
        tall, broad = max(y2 - y1 + 1, 1) / high, max(x2 - x1 + 1, 1) / wide
        rows = range(
            min(max(math.floor(i * tall) + y1, 0), height),
            min(max(math.ceil((i + 1) * tall) + y1, 0), height),
        )
        columns = range(
            min(max(math.floor(j * broad) + x1, 0), width),
            min(max(math.ceil((j + 1) * broad) + x1, 0), width),
        )
        best = -torch.finfo(torch.float32).max if rows and columns else 0.0
        for y, x in itertools.product(rows, columns):
            if input[int(rois[r, 0]), c, y, x] > best:
                best, place[r, c, i, j] = input[int(rois[r, 0]), c, y, x], y * width + x
        value[r, c, i, j] = best
    return value, place


def _outside_is_zero(picture, y, x):
    height, width = picture.shape
    top, left, total = math.floor(y), math.floor(x), 0.0
    for i, j in itertools.product((0, 1), repeat=2):
        if 0 <= top + i < height and 0 <= left + j < width:
            near = (y - top if i else top + 1 - y) * (x - left if j else left + 1 - x)
            total += near * picture[top + i, left + j]
    return total


def _deform(
    input, weight, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask
):
    (batch, channels), (features, depth, kh, kw) = input.shape[:2], weight.shape
    result = bias[None, :, None, None].repeat(batch, 1, *offset.shape[2:])
    moved = offset.reshape(batch, offset_groups, kh, kw, 2, *offset.shape[2:])
    scaled = mask.reshape(batch, offset_groups, kh, kw, *offset.shape[2:]) if use_mask else None
    sizes = (batch, features, depth, kh, kw, *offset.shape[2:])
    for n, f, d, i, j, row, column in itertools.product(*map(range, sizes)):
        channel = f // (features // groups) * depth + d
        group = channel // (channels // offset_groups)
        y, x = moved[n, group, i, j, :, row, column].tolist()
        at = row * sh - ph + i * dh + y, column * sw - pw + j * dw + x
        scale = scaled[n, group, i, j, row, column] if use_mask else 1.0
        read = _outside_is_zero(input[n, channel], *at)
        result[n, f, row, column] += weight[f, d, i, j] * read * scale
    return result


_define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", _nms, _some)
_define(
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    _roi_align,
    lambda x, r, s, h, w, n, a: x.new_empty(r.shape[0], x.shape[1], h, w),
)
_define(
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    _ps_roi_align,
    lambda x, r, s, h, w, n: (
        x.new_empty(r.shape[0], x.shape[1] // (h * w), h, w),
        x.new_empty(r.shape[0], x.shape[1] // (h * w), h, w, dtype=torch.int32),
    ),
)
_define(
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width) -> (Tensor, Tensor)",
    _roi_pool,
    lambda x, r, s, h, w: (
        x.new_empty(r.shape[0], x.shape[1], h, w),
        x.new_empty(r.shape[0], x.shape[1], h, w, dtype=torch.int32),
    ),
)
_define(
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
    _deform,
    lambda x, w, o, *_: x.new_empty(x.shape[0], w.shape[0], *o.shape[2:]),
)
torchvision = torch.ops.torchvision


class _Call(torch.nn.Module):
    def __init__(self, op, *more):
        super().__init__()
        self.op, self.more = op, more

    def forward(self, *tensors):
        return self.op(*tensors, *self.more)


def _check(model, feeds, *others, dynamic=None):
    shapes = None if dynamic is None else (tuple(dynamic),)
    exported = torch.export.export(model, feeds, dynamic_shapes=shapes)
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    names = exported.graph_signature.user_inputs
    for given in (feeds, *others):
        got = runtime.run(program, dict(zip(names, given, strict=True)))
        want = model(*given)
        listed = want if isinstance(want, tuple) else (want,)
        for found, expected in zip(got.values(), listed, strict=True):
            compare(found, expected)


def _boxes(count, seed):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * 6
    return torch.cat([corner, corner + 1 + torch.rand(count, 2, generator=generator) * 4], 1)


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.7])
def test_nms(threshold):
    auto = torch.export.Dim.AUTO
    feeds = [(_boxes(n, n), torch.rand(n).round(decimals=1)) for n in (12, 30, 5)]
    _check(_Call(torchvision.nms, threshold), *feeds, dynamic=({0: auto}, {0: auto}))


@pytest.mark.parametrize("threshold", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_nms_of_an_overlap_equal_to_the_threshold(threshold):
    """0.2 in float32 is above 0.2 in float64, and 0.7 in float32 is below 0.7."""
    within = torch.tensor([[0.0, 0.0, 10.0, 1.0], [0.0, 0.0, 10 * threshold, 1.0]])
    _check(_Call(torchvision.nms, threshold), (within, torch.tensor([0.9, 0.8])))


def _regions(count):
    batch = torch.arange(count).remainder(2)[:, None].float()
    return torch.cat([batch, _boxes(count, 3) * 2 - 2], 1)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_roi_align(scale, aligned):
    auto = torch.export.Dim.AUTO
    model = _Call(torchvision.roi_align, scale, 3, 2, 2, aligned)
    feeds = (torch.randn(2, 3, 8, 7), _regions(5))
    other = (torch.randn(2, 3, 6, 9), _regions(4))
    _check(model, feeds, other, dynamic=({2: auto, 3: auto}, {0: auto}))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_ps_roi_align(scale):
    auto = torch.export.Dim.AUTO
    model = _Call(torchvision.ps_roi_align, scale, 3, 2, 2)
    feeds = (torch.randn(2, 12, 8, 7), _regions(5))
    other = (torch.randn(2, 12, 6, 9), _regions(4))
    _check(model, feeds, other, dynamic=({2: auto, 3: auto}, {0: auto}))


def test_roi_align_with_adaptive_sampling_is_rejected():
    model = _Call(torchvision.roi_align, 1.0, 3, 2, -1, True)
    exported = torch.export.export(model, (torch.randn(2, 3, 8, 7), _regions(5)))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    converter = coreai_torch.TorchConverter().add_exported_program(exported)
    with pytest.raises(coreai_torch.errors.ConversionError, match="sampling_ratio=-1"):
        converter.to_coreai()


def test_roi_pool():
    x = torch.randint(-3, 4, (2, 3, 8, 7)).float()
    x[0, 0, 2, 3], x[1, 1, :, :] = float("nan"), float("-inf")
    outside = torch.tensor([[0, 30.0, 30.0, 40.0, 40.0]])
    _check(_Call(torchvision.roi_pool, 0.5, 3, 2), (x, torch.cat([_regions(5), outside])))


def test_roi_pool_of_bins_of_all_sizes():
    # The greatest of a bin is read from tables of rectangles whose sides are powers of two.
    x = torch.randint(-9, 10, (2, 2, 33, 21)).float()
    corner, size = torch.rand(24, 2) * 30 - 5, 50 * torch.rand(24, 2) ** 3
    rois = torch.cat([torch.arange(24)[:, None] % 2, corner, corner + size], 1)
    _check(_Call(torchvision.roi_pool, 1.0, 2, 3), (x, rois))


def test_roi_pool_of_a_dynamic_size():
    def regions(size):
        return torch.randint(-3, 4, (1, 2, size, 7)).float(), _regions(3)

    first, second = regions(8), regions(13)
    size = {2: torch.export.Dim.DYNAMIC}
    first[1][:, 0] = second[1][:, 0] = 0
    _check(_Call(torchvision.roi_pool, 0.5, 3, 2), first, second, dynamic=(size, None))


@pytest.mark.parametrize(
    ("groups", "offset_groups", "window", "use_mask"),
    [
        (1, 1, (1, 1, 0, 0, 1, 1), False),
        (2, 1, (2, 1, 1, 0, 1, 2), True),
        (1, 2, (1, 2, 1, 1, 1, 1), True),
        (2, 4, (1, 1, 1, 2, 2, 1), True),
    ],
)
def test_deform_conv2d(groups, offset_groups, window, use_mask):
    x, weight, bias = torch.randn(2, 4, 6, 5), torch.randn(4, 4 // groups, 3, 2), torch.randn(4)
    sh, sw, ph, pw, dh, dw = window
    out = (6 + 2 * ph - 2 * dh - 1) // sh + 1, (5 + 2 * pw - dw - 1) // sw + 1
    offset = torch.randn(2, 2 * offset_groups * 6, *out) * 2
    mask = torch.rand(2, offset_groups * 6, *out)
    model = _Call(torchvision.deform_conv2d, *window, groups, offset_groups, use_mask)
    _check(model, (x, weight, offset, mask, bias))
