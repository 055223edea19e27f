"""Lower torch's interpolation modes: each axis in turn becomes a weighted sum of taps.

coreai.interpolate (coreai-core 1.0.0b3) rounds ties to even, supports static sizes only, and
computes coordinates differently, so that over many pixels its weights drift from torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, Shape, case, lowers
from ...lowering.cases import bf16, f16, f32, u8
from ...torch_compat import aten
from .._lib import fixed_point
from .._lib import interpolation_taps as taps
from .._lib.fixed_point import Filter
from .._lib.interpolation_taps import Line, Sampler

_INF, _NAN = float("inf"), float("nan")

_WILD = (1.0, _INF, 0.5, 2.0, 4.0, 0.25, 3.0, _NAN, 1.5, -2.0, -_INF, 7.0, 0.0, 1.0, 2.5, 3.5)
_LARGEST_SIZE = 1 << 16  # sizes up to this are scaled exactly


def _ratio(ctx: Ctx, factor: float) -> Fraction:
    """Return a fraction that scales every size as torch's float64 does.

    The runtime has no float64.
    """
    sizes = torch.arange(1, _LARGEST_SIZE)
    scaled = (sizes.double() * factor).long()
    for denominator in (1, 16, 256, 4096):
        ratio = Fraction(factor).limit_denominator(denominator)
        fits = ratio.numerator * _LARGEST_SIZE < 2**31
        if fits and bool((scaled == sizes * ratio.numerator // ratio.denominator).all()):
            return ratio
    return ctx.refuse(
        f"a dynamic size scaled by {factor} is not supported: no small fraction rounds like it",
        "pass size=... instead of scale_factor=..., or another factor",
    )


def _scaled_sizes(ctx: Ctx, x: Value, factors: Sequence[float]) -> list[Dim]:
    extents, sizes = cai.sizes(x)[-len(factors) :], []
    for extent, factor in zip(extents, factors, strict=True):
        if isinstance(extent, int):
            sizes.append(int(extent * factor))
            continue
        ratio = _ratio(ctx, factor)
        sizes.append(shapes.floordiv(shapes.mul(extent, ratio.numerator), ratio.denominator))
    return sizes


def _outputs(
    ctx: Ctx,
    x: Value,
    size: Sequence[Dim] | None,
    factors: Sequence[float | None] | None,
) -> Sequence[Dim]:
    """Return the sizes of the spatial axes of the result."""
    if size is None:
        size = _scaled_sizes(ctx, x, [f for f in factors or () if f is not None])
    return ctx.dims([*cai.sizes(x)[:2], *size])[2:]


def _resize(
    ctx: Ctx,
    x: Value,
    size: Sequence[Dim] | None,
    factors: Sequence[float | None] | None,
    sampler: Sampler,
    align: bool = False,
) -> Value:
    outs = _outputs(ctx, x, size, factors)
    first = 2
    for axis in reversed(range(first, x.type.rank)):
        factor = factors[axis - first] if factors else None
        line = Line(cai.size(x, axis), outs[axis - first], factor, align)
        x = sampler(line).of(x, axis)
    return x


def _blend(
    ctx: Ctx,
    x: Value,
    size: Sequence[Dim] | None,
    factors: Sequence[float | None] | None,
    sampler: Sampler,
    align: bool,
) -> Value:
    if not cai.is_float(x):
        return _resize_bytes(ctx, x, size, factors, sampler, align)
    wide = cai.cast(x, torch.float32)
    return cai.cast(_resize(ctx, wide, size, factors, sampler, align), ctx.out_dtype)


def _resize_bytes(
    ctx: Ctx,
    x: Value,
    size: Sequence[Dim] | None,
    factors: Sequence[float | None] | None,
    sampler: Sampler,
    align: bool,
) -> Value:
    """Interpolate planes of bytes in fixed point, as torch does.

    For more than four channels and a width of one, torch returns the first row in all rows:
    `interpolate(torch.arange(30, dtype=torch.uint8).view(1, 5, 3, 2), (3, 1), mode="bilinear")`.
    """
    channels, *extents = cai.sizes(x)[1:]
    outs = _outputs(ctx, x, size, factors)
    if sampler not in _BYTE_FILTERS or not shapes.is_static([*extents, *outs]):
        ctx.refuse(
            "interpolation of integers is supported for linear and cubic modes and static sizes: "
            "torch computes it in fixed point, with weights of float64",
            "cast the image to float32 first",
        )
    if outs[1] == 1 and outs[1] != extents[1] and not (isinstance(channels, int) and channels < 5):
        ctx.refuse("torch repeats the first row of bytes resized to a width of one")
    wide = cai.cast(x, torch.int32)
    for place in (1, 0):
        extent, out = int(extents[place]), int(outs[place])
        factor = factors[place] if factors else None
        line = fixed_point.ByteLine(extent, out, _byte_step(extent, out, factor, align), align)
        wide = line.resize(wide, 2 + place, _BYTE_FILTERS[sampler])
    return cai.cast(wide, ctx.out_dtype)


def _byte_step(extent: int, out: int, factor: float | None, align: bool) -> float:
    """Return the source distance between neighbouring output positions in float64."""
    if align:
        return (extent - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / factor if factor is not None and factor > 0 else extent / out


_INPUT = {1: f32(2, 3, 5), 2: f32(1, 2, 5, 4), 3: f32(1, 2, 3, 4, 3)}
_SIZE = {1: [7], 2: [7, 3], 3: [5, 2, 3]}
_FACTOR = {1: [1.5], 2: [2.0, 1.5], 3: [2.0, 1.5, 0.75]}
_SCALED = {1: [7], 2: [10, 6], 3: [6, 6, 2]}
_STATIC_SIZES = "the case has constant output sizes"


def _bytes() -> list[Any]:
    """Return calls on bytes, larger and smaller, with up to and more than four channels."""
    edges = (0, 255, 1, 254, 128, 255, 0)
    return [
        case(u8(2, 3, 17, 23, fixed=True), [9, 40], False, None),
        case(u8(1, 5, 17, 23, fixed=True, values=edges), [40, 7], False, None),
        case(u8(1, 1, 30, 11, fixed=True, values=edges), [4, 23], True, None),
        case(u8(1, 6, 9, 8, fixed=True), None, False, [1.7, 0.4]),
        case(u8(1, 4, 1, 5, fixed=True), [6, 1], False, None),
        case(u8(1, 2, 7, 5, fixed=True), [7, 5], False, None),
    ]


def _vec(spatial: int, *align: bool) -> list[Any]:
    """Return a call with sizes, and one with scale factors."""
    x = _INPUT[spatial]
    return [case(x, _SIZE[spatial], *align, None), case(x, None, *align, _FACTOR[spatial])]


def _full(spatial: int, *align: bool) -> list[Any]:
    """Return a call with sizes, and one with sizes and scale factors."""
    x = _INPUT[spatial]
    factors = case(x, _SCALED[spatial], *align, *_FACTOR[spatial], static_only=_STATIC_SIZES)
    return [case(x, _SIZE[spatial], *align), factors]


@lowers(aten.upsample_nearest1d.vec, cases=[*_vec(1), case(f16(1, 2, 6), None, [0.5])])
@lowers(aten.upsample_nearest3d.vec, cases=_vec(3))
def nearest(
    ctx: Ctx, x: Value, output_size: Shape | None, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(ctx, x, output_size, scale_factors, taps.nearest)


@lowers(
    aten.upsample_nearest2d.vec,
    cases=[
        *_vec(2),
        case(u8(1, 2, 5, 4), [10, 9], None),
        case(bf16(1, 2, 5, 4), None, [0.5, 3.0]),
        case(f32(1, 1, 7, 5), None, [1.1, 2.2]),  # factors that keep and that double the size
        case(f32(1, 1, 10, 10), None, [0.7, 1.3], static_only="0.7 needs float64 at run time"),
    ],
)
def nearest_on_planes(
    ctx: Ctx, x: Value, output_size: Shape | None, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(ctx, x, output_size, scale_factors, taps.nearest_on_planes)


@lowers(
    aten._upsample_nearest_exact1d.vec,
    cases=[*_vec(1), case(f16(1, 2, 6), None, [0.5]), case(f32(1, 1, 24), [564], None)],
)
@lowers(aten._upsample_nearest_exact2d.vec, cases=[*_vec(2), case(f32(1, 2, 4, 6), [2, 3], None)])
@lowers(aten._upsample_nearest_exact3d.vec, cases=_vec(3))
def nearest_exact(
    ctx: Ctx, x: Value, output_size: Shape | None, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(ctx, x, output_size, scale_factors, taps.nearest_exact)


@lowers(aten.upsample_nearest1d.default, cases=_full(1))
def nearest1d(ctx: Ctx, x: Value, output_size: Shape, scales: float | None) -> Value:
    return _resize(ctx, x, output_size, [scales], taps.nearest)


@lowers(aten._upsample_nearest_exact1d.default, cases=_full(1))
def nearest_exact1d(ctx: Ctx, x: Value, output_size: Shape, scales: float | None) -> Value:
    return _resize(ctx, x, output_size, [scales], taps.nearest_exact)


@lowers(aten.upsample_nearest2d.default, cases=_full(2))
def nearest2d(
    ctx: Ctx, x: Value, output_size: Shape, scales_h: float | None, scales_w: float | None
) -> Value:
    return _resize(ctx, x, output_size, [scales_h, scales_w], taps.nearest_on_planes)


@lowers(aten._upsample_nearest_exact2d.default, cases=_full(2))
def nearest_exact2d(
    ctx: Ctx, x: Value, output_size: Shape, scales_h: float | None, scales_w: float | None
) -> Value:
    return _resize(ctx, x, output_size, [scales_h, scales_w], taps.nearest_exact)


@lowers(aten.upsample_nearest3d.default, cases=_full(3))
def nearest3d(
    ctx: Ctx,
    x: Value,
    output_size: Shape,
    scales_d: float | None,
    scales_h: float | None,
    scales_w: float | None,
) -> Value:
    return _resize(ctx, x, output_size, [scales_d, scales_h, scales_w], taps.nearest)


@lowers(aten._upsample_nearest_exact3d.default, cases=_full(3))
def nearest_exact3d(
    ctx: Ctx,
    x: Value,
    output_size: Shape,
    scales_d: float | None,
    scales_h: float | None,
    scales_w: float | None,
) -> Value:
    return _resize(ctx, x, output_size, [scales_d, scales_h, scales_w], taps.nearest_exact)


@lowers(aten.upsample_linear1d.vec, cases=[*_vec(1, False), *_vec(1, True)])
@lowers(
    aten.upsample_bilinear2d.vec,
    cases=[
        *_vec(2, False),
        *_vec(2, True),
        case(f32(1, 2, 4, 6), [1, 3], True, None),
        case(f32(1, 1, 3, 3, values=(1.0, _INF, _NAN, 2.0, -_INF)), [3, 5], False, None),
        case(f16(1, 2, 5, 4), [9, 7], False, None),
        case(bf16(1, 2, 5, 4), None, True, [2.0, 2.0]),
        *_bytes(),
    ],
)
@lowers(aten.upsample_trilinear3d.vec, cases=[*_vec(3, False), *_vec(3, True)])
def linear(
    ctx: Ctx,
    x: Value,
    output_size: Shape | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Value:
    return _blend(ctx, x, output_size, scale_factors, taps.linear, align_corners)


@lowers(aten.upsample_linear1d.default, cases=[*_full(1, False), *_full(1, True)])
def linear1d(
    ctx: Ctx, x: Value, output_size: Shape, align_corners: bool, scales: float | None
) -> Value:
    return _blend(ctx, x, output_size, [scales], taps.linear, align_corners)


@lowers(aten.upsample_bilinear2d.default, cases=[*_full(2, False), *_full(2, True)])
def bilinear2d(
    ctx: Ctx,
    x: Value,
    output_size: Shape,
    align_corners: bool,
    scales_h: float | None,
    scales_w: float | None,
) -> Value:
    return _blend(ctx, x, output_size, [scales_h, scales_w], taps.linear, align_corners)


@lowers(aten.upsample_trilinear3d.default, cases=[*_full(3, False), *_full(3, True)])
def trilinear3d(
    ctx: Ctx,
    x: Value,
    output_size: Shape,
    align_corners: bool,
    scales_d: float | None,
    scales_h: float | None,
    scales_w: float | None,
) -> Value:
    factors = [scales_d, scales_h, scales_w]
    return _blend(ctx, x, output_size, factors, taps.linear, align_corners)


def _plane_lowerings(vec: Any, full: Any, sampler: Sampler) -> None:
    """Register both overloads of a mode that exists for planes only."""
    smaller = [case(f32(1, 2, 11, 9), [4, 5], align, None) for align in (False, True)]
    smaller += [case(f32(1, 1, 9, 13, values=_WILD), [4, 5], False, None)]
    if sampler in _BYTE_FILTERS:
        smaller += _bytes()

    @lowers(vec, cases=[*_vec(2, False), *_vec(2, True), *smaller])
    def by_size_or_factor(
        ctx: Ctx,
        x: Value,
        output_size: Shape | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> Value:
        return _blend(ctx, x, output_size, scale_factors, sampler, align_corners)

    @lowers(full, cases=[*_full(2, False), *_full(2, True)])
    def by_size_and_factor(
        ctx: Ctx,
        x: Value,
        output_size: Shape,
        align_corners: bool,
        scales_h: float | None,
        scales_w: float | None,
    ) -> Value:
        return _blend(ctx, x, output_size, [scales_h, scales_w], sampler, align_corners)


_SMOOTH_LINEAR, _SMOOTH_CUBIC = taps.smooth(taps.triangle, 1), taps.smooth(taps.keys, 2)
_BYTE_FILTERS: dict[Sampler, Filter] = {
    taps.linear: Filter(fixed_point.triangle, 1, antialias=False),
    taps.cubic: Filter(fixed_point.keys(-0.75), 2, antialias=False),
    _SMOOTH_LINEAR: Filter(fixed_point.triangle, 1, antialias=True),
    _SMOOTH_CUBIC: Filter(fixed_point.keys(-0.5), 2, antialias=True),
}

for _op, _sampler in (
    (aten.upsample_bicubic2d, taps.cubic),
    (aten._upsample_bilinear2d_aa, _SMOOTH_LINEAR),
    (aten._upsample_bicubic2d_aa, _SMOOTH_CUBIC),
    (aten._upsample_lanczos2d_aa, taps.smooth(taps.lanczos, 3)),
):
    _plane_lowerings(_op.vec, _op.default, _sampler)
