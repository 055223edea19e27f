"""Lower torch's interpolation modes.

Whole factors are broadcasts or slices. Linear modes are one `coreai.interpolate` for the sizes at
which its coordinates are those of torch. All other static sizes are products with constant
matrices, one for each axis. With dynamic sizes, each axis becomes a weighted sum of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def _lines(
    x: Value, outs: Sequence[Dim], factors: Sequence[float | None] | None, align: bool
) -> dict[int, Line]:
    """Return the axes to resize."""
    return {
        axis: Line(cai.size(x, axis), out, factors[axis - 2] if factors else None, align)
        for axis, out in enumerate(outs, 2)
    }


def _resize(
    ctx: Ctx,
    x: Value,
    size: Sequence[Dim] | None,
    factors: Sequence[float | None] | None,
    sampler: Sampler,
    align: bool,
) -> Value:
    if not cai.is_float(x) and sampler not in _NEAREST:
        return _resize_bytes(ctx, x, size, factors, sampler, align)
    lines = _lines(x, _outputs(ctx, x, size, factors), factors, align)
    for axis in reversed(list(lines)):
        picked = sampler(lines[axis]).picked(x, axis, exact=ctx.exact)
        if picked is not None:
            x = picked
            del lines[axis]
    if sampler is taps.linear and not ctx.exact and _agrees(x, lines.values()):
        return _interpolated(x, lines)
    for axis in reversed(lines):
        x = sampler(lines[axis]).of(x, axis, exact=ctx.exact)
    return x


_DRIFT = {torch.float32: 2.0**-19, torch.float16: 2.0**-14, torch.bfloat16: 2.0**-11}


def _agrees(x: Value, lines: Iterable[Line]) -> bool:
    """Return whether `cai.interpolate` has torch's weights.

    Its coordinates drift at other sizes: by 3e-5 for 512 to 333.
    """
    if cai.may_be_empty(x) or 0 in x.type.shape:
        return False
    limit = _DRIFT.get(cai.dtype(x), 0.0)
    return all(line.is_known and line.drift() <= limit for line in lines)


def _interpolated(x: Value, lines: Mapping[int, Line]) -> Value:
    if not lines:
        return x
    dims, scales = list(cai.sizes(x)), [(1.0, 0.0)] * x.type.rank
    for axis, line in lines.items():
        dims[axis], scales[axis] = line.out, line.scale_and_offset()
    return cai.interpolate(x, dims, [s for s, _ in scales], [o for _, o in scales], "linear")


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
    for place in (1, 0):
        extent, out = int(extents[place]), int(outs[place])
        factor = factors[place] if factors else None
        line = fixed_point.ByteLine(extent, out, _byte_step(extent, out, factor, align), align)
        x = line.resize(x, 2 + place, _BYTE_FILTERS[sampler])
    return x


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


def _lowers(op: Any, spatial: int, sampler: Sampler, more: Sequence[Any] = ()) -> None:
    """Register the overloads of a mode: by size or factors, and by size and factors."""
    x, size, factors = _INPUT[spatial], _SIZE[spatial], _FACTOR[spatial]
    aligns = [[]] if sampler in _NEAREST else [[False], [True]]
    either = [case(x, *g) for a in aligns for g in ([size, *a, None], [None, *a, factors])]
    scaled = [case(x, _SCALED[spatial], *a, *factors, static_only=_STATIC_SIZES) for a in aligns]

    @lowers(op.vec, cases=[*either, *more])
    def by_size_or_factors(
        ctx: Ctx,
        x: Value,
        output_size: Shape | None,
        scale_factors: Sequence[float] | None,
        **align_corners: bool,
    ) -> Value:
        """Without `exact`, an infinity or NaN spreads along its row and column."""
        align = any(align_corners.values())
        return _resize(ctx, x, output_size, scale_factors, sampler, align)

    @lowers(op.default, cases=[*(case(x, size, *a) for a in aligns), *scaled])
    def by_size_and_factors(
        ctx: Ctx, x: Value, output_size: Shape, **scales: float | None
    ) -> Value:
        """Without `exact`, an infinity or NaN spreads along its row and column."""
        align = bool(scales.pop("align_corners", False))
        return _resize(ctx, x, output_size, list(scales.values()), sampler, align)


_NEAREST = (taps.nearest, taps.nearest_on_planes, taps.nearest_exact)
_SMOOTH_LINEAR, _SMOOTH_CUBIC = taps.smooth(taps.triangle, 1), taps.smooth(taps.keys, 2)
_BYTE_FILTERS: dict[Sampler, Filter] = {
    taps.linear: Filter(fixed_point.triangle, 1, antialias=False),
    taps.cubic: Filter(fixed_point.keys(-0.75), 2, antialias=False),
    _SMOOTH_LINEAR: Filter(fixed_point.triangle, 1, antialias=True),
    _SMOOTH_CUBIC: Filter(fixed_point.keys(-0.5), 2, antialias=True),
}

_HALVED = case(f16(1, 2, 6), None, [0.5])
_lowers(aten.upsample_nearest1d, 1, taps.nearest, [_HALVED])
_lowers(
    aten.upsample_nearest2d,
    2,
    taps.nearest_on_planes,
    [
        case(u8(1, 2, 5, 4), [10, 9], None),
        case(bf16(1, 2, 5, 4), None, [0.5, 3.0]),
        case(f32(1, 1, 7, 5), None, [1.1, 2.2]),  # 1.1 keeps the height of 7, 2.2 doubles the width
        case(f32(1, 1, 10, 10), None, [0.7, 1.3], static_only="0.7 needs float64 at run time"),
    ],
)
_lowers(aten.upsample_nearest3d, 3, taps.nearest)
_lowers(
    aten._upsample_nearest_exact1d,
    1,
    taps.nearest_exact,
    [_HALVED, case(f32(1, 1, 24), [564], None)],
)
_lowers(
    aten._upsample_nearest_exact2d, 2, taps.nearest_exact, [case(f32(1, 2, 4, 6), [2, 3], None)]
)
_lowers(aten._upsample_nearest_exact3d, 3, taps.nearest_exact)
_lowers(aten.upsample_linear1d, 1, taps.linear)
_lowers(
    aten.upsample_bilinear2d,
    2,
    taps.linear,
    [
        case(f32(1, 2, 4, 6), [1, 3], True, None),
        case(
            f32(1, 1, 3, 3, values=(1.0, _INF, _NAN, 2.0, -_INF)), [3, 5], False, None, exact=True
        ),
        case(f16(1, 2, 5, 4), [9, 7], False, None),
        case(bf16(1, 2, 5, 4), None, True, [2.0, 2.0]),
        *_bytes(),
    ],
)
_lowers(aten.upsample_trilinear3d, 3, taps.linear)

_SMALLER = [case(f32(1, 2, 11, 9), [4, 5], align, None) for align in (False, True)]
_SMALLER += [case(f32(1, 1, 9, 13, values=_WILD), [4, 5], False, None, exact=True)]
_lowers(aten.upsample_bicubic2d, 2, taps.cubic, [*_SMALLER, *_bytes()])
_lowers(aten._upsample_bilinear2d_aa, 2, _SMOOTH_LINEAR, [*_SMALLER, *_bytes()])
_lowers(aten._upsample_bicubic2d_aa, 2, _SMOOTH_CUBIC, [*_SMALLER, *_bytes()])
_lowers(aten._upsample_lanczos2d_aa, 2, taps.smooth(taps.lanczos, 3), _SMALLER)
