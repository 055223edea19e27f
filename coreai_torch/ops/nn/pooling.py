"""Lower max (with indices), average and adaptive pooling over one to three axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.composite import Composite
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, Shape, case, decomposes, lowers
from ...lowering.cases import bf16, f16, f32, i32, i64, u8
from ...torch_compat import aten
from .._lib.constant_positions import LARGEST_MATRIX, multiply
from .._lib.windows import (
    Slide,
    Table,
    Windows,
    adaptive,
    add,
    along,
    cast,
    column,
    count,
    div,
    maximum,
    minimum,
    mul,
    reshape,
    sub,
    value,
)
from ..reduce.reductions import average

_INF, _NAN = float("inf"), float("nan")

# Up to so many elements a float16 average is computed in float16, scaled by a power of two first:
# the sum of four elements of 20,000 is infinite. The scaled sum of 4,096 elements of 0.01 would be
# off by 1 %, because numbers below 6e-5 have few digits; the composite computes it in float32.
_MOST_HALF_TAPS = 16

# Map the size of an axis to the windows along it.
Plan: TypeAlias = Callable[[Dim], Windows]


def _slides(
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    spatial: int,
) -> list[Slide]:
    """Return one slide per axis; one number applies to all axes, no stride means the kernel."""
    fields = [list(f) * spatial if len(f) == 1 else list(f) for f in (kernel, padding, dilation)]
    steps = list(stride) * spatial if len(stride) == 1 else list(stride) or fields[0]
    return [Slide(k, s, p, d, ceil) for k, p, d, s in zip(*fields, steps, strict=True)]


def _lowest(x: Value) -> float:
    return -_INF if cai.is_float(x) else torch.iinfo(cai.dtype(x)).min


def _on_planes(x: Value, spatial: int, pool: Callable[[Value], Value]) -> Value:
    """Add the missing batch, channel and height axes, pool, and remove them again."""
    lead, height = [*range(spatial + 2 - x.type.rank)], [2] if spatial == 1 else []
    pooled = pool(cai.expand_dims(cai.expand_dims(x, lead), height))
    return cai.shrink_dims(cai.shrink_dims(pooled, height), lead)


def _as_planes(slides: Sequence[Slide]) -> list[Slide]:
    """Return the slides for planes: one axis becomes a plane of height 1."""
    return [*([Slide(1, 1)] if len(slides) == 1 else []), *slides]


def _padded(x: Value, slides: Sequence[Slide], filler: float) -> Value:
    """Pad to fit the windows."""
    rooms = [s.padding_to_fit(e) for s, e in zip(slides, cai.sizes(x)[2:], strict=True)]
    return cai.pad(x, [(0, 0), (0, 0), *rooms], cai.like(x, filler))


def _pooled_sizes(x: Value, slides: Sequence[Slide]) -> list[Dim]:
    batch, channels, *extents = cai.sizes(x)
    return [batch, channels, *(s.windows(e) for s, e in zip(slides, extents, strict=True))]


def _trimmed(x: Value, slides: Sequence[Slide]) -> list[Slide]:
    return [s.trimmed(e) for s, e in zip(slides, cai.sizes(x)[2:], strict=True)]


def _max(x: Value, slides: Sequence[Slide]) -> Value:
    slides = _trimmed(x, slides)
    is_ceiled = all(s.is_ceiled(e) for s, e in zip(slides, cai.sizes(x)[2:], strict=True))
    return cai.max_pool(
        shapes.tensor_type(_pooled_sizes(x, slides), x),
        x if is_ceiled else _padded(x, slides, _lowest(x)),
        [s.kernel for s in slides],
        [s.stride for s in slides],
        [s.dilation for s in slides],
        is_ceiled and any(s.ceil for s in slides),
    )


def _greatest(x: Value, plans: Sequence[Plan]) -> Value:
    """Return the maximum of each window, one axis after the other."""
    for axis, plan in enumerate(plans, start=x.type.rank - len(plans)):
        windows = plan(cai.size(x, axis)).filled(x, axis, _lowest(x))
        x = cai.shrink_dims(cai.reduce_max(windows, [axis + 1]), [axis + 1])
    return x


def _greatest_and_places(x: Value, plans: Sequence[Plan]) -> list[Value]:
    """Return the maximum of each window and its index in the plane.

    Reduce one axis after the other, the last one first, so that the first of equal elements in
    row-major order wins. A window with NaN gives the index of its last NaN, as in torch.
    """
    first_axis = x.type.rank - len(plans)
    extents = cai.sizes(x)[first_axis:]
    numbers = count(shapes.product(extents))
    places: Table = reshape(numbers, [1] * first_axis + list(extents))
    for axis in reversed(range(first_axis, x.type.rank)):
        windows = plans[axis - first_axis](cai.size(x, axis))
        taps = windows.filled(x, axis, _lowest(x))
        at = windows.of_table(places, axis)
        x = cai.reduce_max(taps, [axis + 1])
        inside = value(along(windows.inside, axis, taps.type.rank))
        found = cai.logical_and(cai.equal(taps, x), inside)
        place = cai.reduce_min(cai.where(found, at, cai.like(at, 2**31 - 1)), [axis + 1])
        if cai.is_float(x):
            nans = cai.where(cai.not_equal(taps, taps), at, cai.like(at, -1))
            last = cai.reduce_max(nans, [axis + 1])
            place = cai.where(cai.greater(last, cai.like(last, -1)), last, place)
        x, places = cai.shrink_dims(x, [axis + 1]), cai.shrink_dims(place, [axis + 1])
    return [x, value(places)]


_PLANE = f32(2, 3, 7, 8)
_TIES = (1.0, 3.0, 3.0, 2.0, 3.0)
_ODD = (1.0, _NAN, 2.0, _INF, -_INF, -_INF, -_INF, _NAN, 0.5, -_INF, -_INF)


def _max_pool(ctx: Ctx, x: Value, slides: Sequence[Slide]) -> list[Value | None]:
    if ctx.uses(1):
        return [*_greatest_and_places(x, [s.taps for s in slides])]
    return [_on_planes(x, len(slides), lambda planes: _max(planes, _as_planes(slides))), None]


def _max_pooling(spatial: int) -> Callable[..., list[Value | None]]:
    def max_pool(
        ctx: Ctx,
        x: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> list[Value | None]:
        return _max_pool(
            ctx, x, _slides(kernel_size, stride, padding, dilation, ceil_mode, spatial)
        )

    return max_pool


lowers(
    aten.max_pool2d_with_indices.default,
    cases=[
        case(_PLANE, [2, 2]),
        case(_PLANE, [3, 2], [2, 1], [1, 0]),
        case(f32(2, 3, 7, 8, values=_TIES), [3, 3], [2, 2], [1, 1], [2, 2]),
        case(f32(3, 8, 9), [3], [2], [1], [1], True),
        case(f32(1, 1, 4, 5), [2, 2], [3, 3], [1, 1], [1, 1], True),
        case(_PLANE, [1_280, 9], [1_280, 12], [0, 2], [1, 1], True),
        case(f32(1, 2, 5, 6, values=_ODD), [3, 3], [1, 2], [1, 1]),
        case(f16(1, 2, 4, 4), [2, 2]),
        case(bf16(1, 2, 4, 4), [2, 2], [1]),
        case(i64(2, 5, 5), [2, 2], [2, 2], [1, 1], [1, 1], True),
        case(u8(1, 2, 5, 5), [3, 3], [2, 2], [1, 1]),
    ],
)(_max_pooling(2))
lowers(
    aten.max_pool3d_with_indices.default,
    cases=[
        case(f32(1, 2, 5, 6, 4), [2, 3, 2]),
        case(f32(2, 5, 6, 7, values=_TIES), [3, 2, 3], [2, 1, 2], [1, 0, 1], [1, 2, 1], True),
        case(f32(1, 1, 4, 4, 5, values=_ODD), [2], [1], [1]),
        case(i32(1, 2, 4, 4, 4), [2], [2], [1], [1], True),
    ],
)(_max_pooling(3))


@decomposes(
    aten.max_pool2d.default,
    cases=[
        case(_PLANE, [3, 2], [2, 1], [1, 0], [1, 2], True),
        case(f32(3, 8, 9), [2]),
        case(f32(1, 2, 7, 10, low=-9, high=-1), [2, 3], [2, 3], [0, 0], [1, 1], True),
        case(f32(1, 2, 9, 7, low=-9, high=-1), [1, 3], [4, 2], [0, 0], [1, 2], True),
        case(i64(2, 5, 5), [2], [2], [0], [1], True),
    ],
)
def max_pool2d_alone(*args: Any) -> torch.Tensor:
    return aten.max_pool2d_with_indices.default(*args)[0]


@decomposes(
    aten.max_pool3d.default,
    cases=[
        case(f32(2, 5, 6, 7), [3, 2, 3], [2], [1], [1], True),
        case(f16(1, 2, 5, 4, 3, low=-9, high=-1), [2], [2], [0], [1], True),
    ],
)
def max_pool3d_alone(*args: Any) -> torch.Tensor:
    return aten.max_pool3d_with_indices.default(*args)[0]


def _plans(x: Value, output_size: Sequence[Dim]) -> list[Plan]:
    return [lambda extent, o=o: adaptive(extent, o) for o in output_size]  # type: ignore[misc]


def _even(x: Value, output_size: Sequence[Dim]) -> list[Slide] | None:
    """Return the slides of adaptive windows if they have equal sizes and do not overlap."""
    slides = []
    for out, extent in zip(output_size, cai.sizes(x)[-len(output_size) :], strict=True):
        if not isinstance(out, int) or not isinstance(extent, int) or extent % out:
            return None
        slides.append(Slide(extent // out, extent // out))
    return slides


@lowers(
    aten.adaptive_max_pool2d.default,
    cases=[
        case(_PLANE, [3, 5]),
        case(f32(3, 6, 8, values=_TIES), [3, 4]),
        case(f32(1, 2, 5, 6, values=_ODD), [2, 4]),
        case(f32(1, 2, 3, 3), [5, 1]),
        case(bf16(1, 2, 5, 5), [2, 2]),
    ],
)
@lowers(
    aten.adaptive_max_pool3d.default,
    cases=[case(f32(1, 2, 5, 6, 4), [2, 4, 3]), case(f32(2, 4, 6, 4), [2, 3, 1])],
)
def adaptive_max_pool(ctx: Ctx, x: Value, output_size: Shape) -> list[Value | None]:
    if ctx.uses(1):
        return [*_greatest_and_places(x, _plans(x, output_size))]
    if slides := _even(x, output_size):
        return [_on_planes(x, len(slides), lambda planes: _max(planes, _as_planes(slides))), None]
    return [_greatest(x, _plans(x, output_size)), None]


def _divisor(slide: Slide, extent: Dim, include_pad: bool) -> Table:
    """Return the number of elements that each window along an axis counts."""
    if not slide.ceil and (include_pad or slide.padding == 0):
        return torch.tensor([slide.kernel])
    starts = slide.starts(extent)
    border = slide.padding if include_pad else 0
    ends = minimum(add(starts, slide.kernel), shapes.add(extent, border))
    counted = sub(ends, maximum(starts, -border))
    if isinstance(counted, torch.Tensor) and bool((counted == counted[0]).all()):
        return counted[:1]
    return counted


def _average(x: Value, slides: Sequence[Slide], include_pad: bool, override: int | None) -> Value:
    rank = x.type.rank
    used = _trimmed(x, slides)
    windows = [s.kernel for s in used], [s.stride for s in used], [s.dilation for s in used]
    places: Table = torch.tensor(1 if override is None else override)
    if override is None:
        for axis, (slide, extent) in enumerate(zip(slides, cai.sizes(x)[2:], strict=True), 2):
            places = mul(places, along(_divisor(slide, extent, include_pad), axis, rank))
    if cai.dtype(x) != torch.float16:
        total = cai.sum_pool(_padded(x, used, 0), *windows)
        return cai.div(total, value(cast(places, cai.dtype(total))))
    taps = math.prod(windows[0])
    if taps > _MOST_HALF_TAPS:
        total = cai.sum_pool(_padded(cai.cast(x, torch.float32), used, 0), *windows)
        return cai.cast(cai.div(total, value(cast(places, torch.float32))), torch.float16)
    scale = 2.0 ** math.ceil(math.log2(taps))
    shares = cai.mul(x, cai.like(x, 1 / scale))
    total = cai.sum_pool(_padded(shares, used, 0), *windows)
    factor = div(torch.tensor(scale), cast(places, torch.float32))
    if isinstance(factor, torch.Tensor) and bool((factor == 1).all()):
        return total
    return cai.mul(total, value(cast(factor, torch.float16)))


def _avg_pool(
    ctx: Ctx,
    x: Value,
    slides: Sequence[Slide],
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> Value:
    spatial = len(slides)
    attrs = {
        "kernel_size": [s.kernel for s in slides],
        "stride": [s.stride for s in slides],
        "padding": [s.padding for s in slides],
        "ceil_mode": slides[0].ceil,
        "count_include_pad": count_include_pad,
        "divisor_override": divisor_override,
    }

    def avg_pool(input: Value) -> Value:
        def pool(planes: Value) -> Value:
            return _average(planes, _as_planes(slides), count_include_pad, divisor_override)

        return _on_planes(input, spatial, pool)

    contract = Composite(f"avg_pool{spatial}d", inputs=("input",), attrs=attrs)
    (output,) = ctx.emit(contract, avg_pool, x)
    return output


def _average_pooling(spatial: int) -> Callable[..., Value]:
    def avg_pool(
        ctx: Ctx,
        x: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        **divisor: int | None,
    ) -> Value:
        slides = _slides(kernel_size, stride, padding, [1], ceil_mode, spatial)
        return _avg_pool(ctx, x, slides, count_include_pad, *divisor.values())

    return avg_pool


lowers(
    aten.avg_pool1d.default,
    cases=[
        case(f32(2, 3, 9), [3]),
        case(f32(3, 9), [4], [2], [1], True),
        case(f32(2, 3, 9), [3], [2], [1], True, False),
        case(f16(1, 2, 8, values=(1000.0, 3.5, -2.25)), [4], [3], [2], False, False),
    ],
)(_average_pooling(1))
lowers(
    aten.avg_pool2d.default,
    cases=[
        case(_PLANE, [2, 3]),
        case(f32(3, 7, 8), [3, 3], [2, 2], [1, 1], True),
        case(_PLANE, [3, 3], [2, 1], [1, 1], False, False),
        case(_PLANE, [3, 2], [2], [1], True, False),
        case(_PLANE, [3], [2], [1], True, True, 5),
        case(_PLANE, [1_280, 9], [1_280, 12], [0, 2], True),
        case(_PLANE, [1_280], [], [2], True, False),
        case(f32(1, 1, 4, 5, values=(1.0, _INF, _NAN, 2.0, -3.0, 4.0, 0.5)), [2, 2], [1]),
        case(bf16(1, 2, 6, 6), [2, 2]),
        case(f16(1, 2, 6, 6, low=-6e4, high=6e4), [2, 2]),
        case(f16(1, 2, 7, 8, high=6e4), [3, 3], [2, 2], [1, 1], True, False),
        case(f16(1, 2, 7, 7, values=(6e4, 5e4, 1.0, 4e4)), [7, 7]),
        case(f16(1, 1, 64, 64, values=(0.01,)), [64, 64]),
        case(f16(1, 2, 6, 6), [2, 3], [2, 3], [0, 0], False, True, 5),
        case(i64(2, 6, 7), [2, 3], [2, 2], [1, 1]),
    ],
)(_average_pooling(2))
lowers(
    aten.avg_pool3d.default,
    cases=[
        case(f32(1, 2, 5, 6, 7), [2, 3, 2]),
        case(f32(2, 5, 6, 7), [3, 2, 3], [2, 1, 2], [1, 0, 1], True, False),
        case(f32(1, 2, 5, 6, 7), [3], [2], [1], True, True, -3),
        case(i64(1, 2, 4, 4, 4), [2], [1], [1]),
    ],
)(_average_pooling(3))


def _adaptive_average(x: Value, output_size: Sequence[Dim], exact: bool) -> Value:
    if all(o == 1 for o in output_size):
        first = x.type.rank - len(output_size)
        return average(x, range(first, x.type.rank))
    if slides := _even(x, output_size):
        return _on_planes(x, len(slides), lambda p: _average(p, _as_planes(slides), True, None))
    for axis, out in enumerate(output_size, start=x.type.rank - len(output_size)):
        windows = adaptive(cai.size(x, axis), out)
        if (
            cai.is_float(x)
            and not exact
            and (shares := _shares(windows, x.type.shape[axis])) is not None
        ):
            x = multiply(x, axis, shares)
            continue
        cells = windows.filled(x, axis, 0)
        places = value(along(column(cast(windows.count(), cai.dtype(x))), axis, cells.type.rank))
        if cai.dtype(x) == torch.float16:  # divided first, as a sum may be infinite
            total = cai.reduce_sum(cai.div(cells, places), [axis + 1])
        else:
            total = cai.div(cai.reduce_sum(cells, [axis + 1]), places)
        x = cai.shrink_dims(total, [axis + 1])
    return x


def _shares(windows: Windows, extent: int) -> torch.Tensor | None:
    """Return the share of each element of an axis in the average of each window.

    Return None for dynamic sizes and for a large matrix.
    """
    inside, positions = windows.inside, windows.positions
    if not isinstance(inside, torch.Tensor) or not isinstance(positions, torch.Tensor):
        return None
    if extent * len(positions) > LARGEST_MATRIX:
        return None
    shares = inside / inside.sum(1, keepdim=True)
    return torch.zeros(len(positions), extent).scatter_add(1, positions, shares)


_SPACE = f32(1, 2, 5, 6, 4)
_AVERAGED = [
    case(_PLANE, [3, 5]),
    case(_PLANE, [1, 1]),
    case(f32(3, 6, 8), [3, 4]),
    case(f32(3, 6, 8), [1, 3]),
    case(f32(1, 2, 3, 3), [5, 4]),
    case(f32(1, 1, 4, 5, values=(1.0, _INF, _NAN, 2.0, -3.0, 4.0, 0.5)), [3, 2], exact=True),
    case(f16(1, 2, 5, 5, values=(1000.0, 3.5, -2.25)), [2, 3]),
    case(bf16(1, 2, 6, 6), [3, 1]),
]


@lowers(
    aten.adaptive_avg_pool1d.default,
    cases=[case(f32(2, 3, 7), [3]), case(f32(3, 8), [4]), case(f16(2, 3, 8), [1])],
)
@lowers(aten._adaptive_avg_pool2d.default, cases=_AVERAGED)
@lowers(
    aten._adaptive_avg_pool3d.default,
    cases=[case(_SPACE, [2, 4, 3]), case(_SPACE, [1, 1, 1]), case(f32(2, 4, 6, 4), [2, 3, 1])],
)
def adaptive_avg_pool(ctx: Ctx, x: Value, output_size: Shape) -> Value:
    """Without `exact`, an infinity or NaN spreads along its lines if windows differ in size."""
    whole = all(o == 1 for o in output_size)  # a mean over all elements, as in torch
    if whole or not shapes.is_static(output_size):  # a contract cannot store dynamic sizes
        return _adaptive_average(x, output_size, ctx.exact)

    def adaptive_avg_pool(input: Value) -> Value:
        return _adaptive_average(input, output_size, ctx.exact)

    name = f"adaptive_avg_pool{len(output_size)}d"
    contract = Composite(name, inputs=("input",), attrs={"output_size": [*output_size]})
    (output,) = ctx.emit(contract, adaptive_avg_pool, x)
    return output


@decomposes(aten.adaptive_avg_pool2d.default, cases=_AVERAGED[:3])
def adaptive_avg_pool2d_whole(input: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    """Keep the op also for one window, which torch decomposes into a mean."""
    return aten._adaptive_avg_pool2d.default(input, output_size)


@decomposes(
    aten.adaptive_avg_pool3d.default, cases=[case(_SPACE, [2, 4, 3]), case(_SPACE, [1] * 3)]
)
def adaptive_avg_pool3d_whole(input: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    return aten._adaptive_avg_pool3d.default(input, output_size)
