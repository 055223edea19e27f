"""Lower convolutions and transposed convolutions of one to three spatial axes.

Integer convolutions, which the dialect lacks, become sums of shifted products.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, case, decomposes, lowers
from ...lowering.cases import NARROW_PRODUCTS, bf16, f16, f32, i64
from ...torch_compat import aten


@dataclass(frozen=True)
class _Window:
    """Geometry of a convolution: one number per spatial axis in each field but `groups`."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int

    def with_height(self) -> _Window:
        """Return the window for a plane of height 1."""
        return _Window(
            (1, *self.stride),
            (0, *self.padding),
            (1, *self.dilation),
            (0, *self.output_padding),
            self.groups,
        )


def _per_axis(given: Sequence[int], spatial: int) -> tuple[int, ...]:
    """Repeat a single number for all axes."""
    return tuple(given) * spatial if len(given) == 1 else tuple(given)


def _pad(x: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    return cai.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])


def _forward(ctx: Ctx, x: Value, weight: Value, w: _Window) -> Value:
    return cai.conv(_pad(x, w.padding, w.padding), weight, w.stride, w.dilation, w.groups)


def _transposed(ctx: Ctx, x: Value, weight: Value, w: _Window) -> Value:
    sizes = list(ctx.out.shape)
    if len(sizes) < x.type.rank:
        sizes.insert(2, 1)
    return cai.conv_transpose(
        cai.RankedTensorType.get(sizes, x.type.element_type),
        x,
        weight,
        w.stride,
        w.padding,
        w.dilation,
        w.output_padding,
        w.groups,
    )


def _integer(x: Value, weight: Value, w: _Window) -> Value:
    """Sum shifted products.

    The dialect convolves floats only, and float32 is exact only up to 2**24.
    """
    x = _pad(x, w.padding, w.padding)
    (batch, _, *extents), (features, depth, *kernel) = cai.sizes(x), cai.sizes(weight)
    span = [shapes.mul(d, shapes.sub(k, 1)) for d, k in zip(w.dilation, kernel, strict=True)]
    outs = [
        shapes.add(shapes.floordiv(shapes.sub(shapes.sub(e, r), 1), s), 1)
        for e, r, s in zip(extents, span, w.stride, strict=True)
    ]
    read_sizes = [
        shapes.add(shapes.mul(shapes.sub(o, 1), s), 1) for o, s in zip(outs, w.stride, strict=True)
    ]
    grouped = cai.reshape(x, [batch, w.groups, 1, depth, *extents])
    taps = cai.reshape(weight, [1, w.groups, shapes.floordiv(features, w.groups), depth, *kernel])
    total: Value | None = None
    for at in itertools.product(*(range(int(k)) for k in kernel)):
        starts = [a * d for a, d in zip(at, w.dilation, strict=True)]
        ends = [shapes.add(s, e) for s, e in zip(starts, read_sizes, strict=True)]
        slice_ = _slice_spatial(grouped, starts, ends, w.stride)
        tap = _slice_spatial(taps, at, [a + 1 for a in at], [1] * len(at))
        part = cai.reduce_sum(cai.mul(slice_, tap), [3])
        total = part if total is None else cai.add(total, part)
    assert total is not None  # a kernel has at least one tap
    return cai.reshape(total, [batch, features, *outs])


def _slice_spatial(
    x: Value, starts: Sequence[Dim], ends: Sequence[Dim], strides: Sequence[int]
) -> Value:
    """Slice the spatial axes; the first four axes are kept."""
    leading = cai.sizes(x)[:4]
    return cai.slice_(x, [0] * 4 + [*starts], [*leading, *ends], [1] * 4 + [*strides])


def _integer_transposed(x: Value, weight: Value, w: _Window) -> Value:
    """Convolve the zero-stuffed input with the flipped kernel."""
    for axis, step in enumerate(w.stride, start=2):
        x = stuff_zeros(x, axis, step)
    channels, features, *kernel = (int(k) for k in cai.sizes(weight))
    depth = channels // w.groups
    flipped = cai.reverse(weight, range(2, x.type.rank))
    flipped = cai.reshape(flipped, [w.groups, depth, features, *kernel])
    flipped = cai.transpose(flipped, [0, 2, 1, *range(3, x.type.rank + 1)])
    flipped = cai.reshape(flipped, [w.groups * features, depth, *kernel])
    excess = [d * (k - 1) - p for d, k, p in zip(w.dilation, kernel, w.padding, strict=True)]
    after = [r + o for r, o in zip(excess, w.output_padding, strict=True)]
    x = _pad(x, [max(r, 0) for r in excess], [max(r, 0) for r in after])
    for axis, (before, cropped_after) in enumerate(zip(excess, after, strict=True), start=2):
        end = shapes.add(cai.size(x, axis), min(cropped_after, 0))
        x = cai.slice_axis(x, axis, max(-before, 0), end)
    ones = (1,) * len(kernel)
    zeros = (0,) * len(kernel)
    return _integer(x, flipped, replace(w, stride=ones, padding=zeros, output_padding=zeros))


def stuff_zeros(x: Value, axis: int, step: int) -> Value:
    """Insert `step - 1` zeros between neighbours along an axis."""
    if step == 1:
        return x
    sizes = list(cai.sizes(x))
    stuffed = cai.expand_dims(x, [axis + 1])
    padding = [(0, 0)] * stuffed.type.rank
    padding[axis + 1] = (0, step - 1)
    sizes[axis] = shapes.mul(sizes[axis], step)
    stuffed = cai.reshape(cai.pad(stuffed, padding), sizes)
    return cai.slice_axis(stuffed, axis, 0, shapes.sub(sizes[axis], step - 1))


def _convolve(ctx: Ctx, x: Value, weight: Value, w: _Window, transposed: bool) -> Value:
    if cai.is_complex(x):  # torch decomposes complex convolutions
        ctx.refuse("complex convolutions are supported only after decomposition")
    if cai.is_float(x):
        return (_transposed if transposed else _forward)(ctx, x, weight, w)
    if not shapes.is_static(cai.sizes(weight)):
        ctx.refuse("an integer convolution with a dynamic kernel size is not supported")
    return (_integer_transposed if transposed else _integer)(x, weight, w)


_ONE = ([1], [0], [1], False, [0], 1)  # stride, padding, dilation, transposed, ...
_UP = ([2], [1], [1], True, [1], 1)


@lowers(
    aten.convolution.default,
    cases=[
        case(f32(1, 2, 9), f32(4, 2, 3, fixed=True), None, [2], [1], [1], False, [0], 1),
        case(f32(2, 4, 9), f32(4, 1, 3), f32(4), [1], [2], [2], False, [0], 4),
        case(f32(1, 4, 8, 8), f32(6, 2, 3, 3), f32(6), [1, 2], [1, 0], [1, 1], False, [0, 0], 2),
        case(f32(2, 3, 9, 7), f32(2, 3, 3, 2, fixed=True), None, [2], [1], [2], False, [0], 1),
        case(f16(1, 2, 5, 5), f16(3, 2, 3, 3, constant=True), f16(3), *_ONE),
        case(bf16(1, 2, 5, 5), bf16(3, 2, 3, 3, fixed=True), bf16(3, constant=True), *_ONE),
        case(f32(1, 2, 5, 5, 5), f32(3, 2, 2, 2, 2), f32(3), *_ONE),
        case(f32(1, 4, 5, 6, 5), f32(4, 2, 2, 3, 2), None, [1, 2, 1], [0, 1, 2], *_ONE[2:5], 2),
        case(f32(2, 4, 5), f32(4, 3, 3), f32(3), *_UP),
        case(f32(1, 4, 5, 5), f32(4, 3, 3, 3), f32(6), [2, 2], [1, 1], [1, 1], True, [1, 0], 2),
        case(
            f32(1, 2, 4, 3, 4),
            f32(2, 3, 3, 2, 1),
            f32(3),
            [2, 1, 3],
            [1, 1, 0],
            [1],
            True,
            [1, 0, 2],
            1,
        ),
        case(
            f16(1, 2, 3, 3, 3),
            f16(2, 3, 2, 2, 2),
            f16(3),
            *_UP,
            one_size=NARROW_PRODUCTS,
        ),
        case(bf16(1, 2, 3, 3), bf16(2, 3, 2, 2, fixed=True), None, *_UP),
        case(
            f16(1, 4096, 1, 1, values=(0.1,)),
            f16(4096, 1, 1, 1, values=(1.0,)),
            None,
            *([1], [0], [1], True, [0], 1),
            by_torch=NARROW_PRODUCTS,
            static_only="the channels are those of the weight",
        ),
        case(i64(2, 4, 7), i64(6, 2, 3, fixed=True), i64(6), [2], [1], [2], False, [0], 2),
        case(i64(1, 2, 5, 5, values=(2**24 + 1, 1)), i64(3, 2, 2, 3, fixed=True), None, *_ONE),
        case(i64(1, 4, 3, 4), i64(4, 3, 3, 2, fixed=True), i64(6), [2, 3], [1, 2], *_UP[2:5], 2),
    ],
)
def convolution(
    ctx: Ctx,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    spatial = x.type.rank - 2
    if spatial not in (1, 2, 3):
        ctx.refuse(f"only one to three spatial axes are supported, this input has {spatial}")
    window = _Window(
        _per_axis(stride, spatial),
        _per_axis(padding, spatial),
        _per_axis(dilation, spatial),
        _per_axis(output_padding, spatial),
        groups,
    )
    if spatial == 1:  # the dialect needs two spatial axes: add a height of 1
        x, weight = cai.expand_dims(x, [2]), cai.expand_dims(weight, [2])
        window = window.with_height()
    y = _convolve(ctx, x, weight, window, transposed)
    if spatial == 1:
        y = cai.shrink_dims(y, [2])
    if bias is not None:
        bias = cai.cast(bias, cai.dtype(y))
        y = cai.add(y, cai.expand_dims(bias, [0, *range(2, spatial + 2)]))
    return cai.cast(y, ctx.out_dtype)


@decomposes(
    aten._convolution.default,
    cases=[
        case(
            f32(1, 2, 5, 5),
            f32(3, 2, 3, 3),
            f32(3),
            [1, 1],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            1,
            False,
            False,
            True,
            True,
        ),
        case(
            f32(1, 2, 5), f32(2, 3, 3), None, [2], [0], [1], True, [1], 1, False, False, True, True
        ),
    ],
)
def _convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any
) -> torch.Tensor:
    return aten.convolution(x, weight, bias, *geometry[:6])  # the others choose a kernel


@decomposes(
    aten.conv_tbc.default,
    cases=[case(f32(6, 2, 3), f32(3, 3, 4), f32(4)), case(f32(6, 2, 3), f32(2, 3, 4), f32(4), 1)],
)
def conv_tbc(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0
) -> torch.Tensor:
    """Lower the [time, batch, channel] layout to conv1d."""
    channels_first = input.permute(1, 2, 0), weight.permute(2, 1, 0)
    return torch.nn.functional.conv1d(*channels_first, bias, padding=pad).permute(2, 0, 1)
