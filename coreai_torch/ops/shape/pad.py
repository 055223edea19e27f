"""Lower constant, reflection, replication and circular padding; negative padding crops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch.nn import functional

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, Number, Shape, case, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .._lib import windows
from .._lib.size_bounds import is_never_negative
from .._lib.windows import take

_WINDOW_OPS = (
    aten.convolution.default,
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.avg_pool1d.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
)


@lowers(
    aten.constant_pad_nd.default,
    cases=[
        case(f32(2, 3), [1, 2]),
        case(f32(2, 3), [1, 0, 0, 2], 2.5),
        case(f32(2, 4), [-1, 2]),
        case(f32(2, 4), [-1, -2], 1),
        case(f32(2, 4), [0, 0]),
        case(f32(1, 2, 3, 3), [1, -1, 2, 0], float("-inf")),
        case(f16(3), [1, 1], 0.1),
        case(bf16(3), [1, 1], 0.1),
        case(i64(3), [2, 0], -7),
        case(i8(3), [2, 0], 3),
        case(b1(3), [1, 1], True),
        case(u8(2, 3, 5, 70), [0, 0, 1, 2, 0, 3], 114),
        case(i32(3, 64), [0, 0, 2, -1], -7),
        case(c64(2, 3), [1, 1], 2.5),
        case(c64(2, 3), [1, 1], 2.5 - 1j),
        case(f32(), []),
    ],
)
def constant_pad_nd(ctx: Ctx, x: Value, pad: Shape, value: Number) -> Value:
    sides = _per_axis(pad, x.type.rank)
    grows = _per_axis([is_never_negative(count) for count in ctx.fake("pad")], x.type.rank)
    cropped = _crop(x, sides, grows)
    padding = _positive(sides, grows)
    if cai.is_complex(x):  # coreai.pad of complex values crashes the process (1.0.0b3)
        values = (value.real, value.imag) if isinstance(value, complex) else (value, 0)
        parts = cai.real_part(cropped), cai.imaginary_part(cropped)
        padded = (cai.pad(p, padding, cai.like(p, v)) for p, v in zip(parts, values, strict=True))
        return cai.create_complex(*padded)
    pads = cai.pad_op if _feeds_windows(ctx) else cai.pad
    return pads(cropped, padding, cai.like(x, value))


def _feeds_windows(ctx: Ctx) -> bool:
    """Return whether only convolutions and pools read the result; see `cai.pad_op`."""
    readers = [user.target for user in ctx.call.node.users]
    return bool(readers) and all(reader in _WINDOW_OPS for reader in readers)


Sides: TypeAlias = Sequence[tuple[Dim, Dim]]  # (before, after) for each axis


def _per_axis(pad: Sequence[Dim], rank: int) -> list[tuple[Dim, Dim]]:
    """Return (before, after) for every axis; torch lists the last axis first."""
    pairs: list[tuple[Dim, Dim]] = [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _positive(sides: Sides, grows: Sides | None = None) -> list[tuple[Dim, Dim]]:
    """Return the padding without negative counts; `grows` marks those known to be none."""
    known = grows or [(False, False)] * len(sides)
    return [
        (a if before else shapes.maximum(a, 0), b if after else shapes.maximum(b, 0))
        for (a, b), (before, after) in zip(sides, known, strict=True)
    ]


def _crop(x: Value, sides: Sides, grows: Sides | None = None) -> Value:
    """Return `x` without the elements that negative padding removes.

    A slice takes as long as the padding, so it is left out if all counts are known to be positive:
    `(7 - n % 7) % 7` is.
    """
    known = grows or [(False, False)] * len(sides)
    grown = [
        [bool(g) or (isinstance(s, int) and s >= 0) for s, g in zip(side, flags, strict=True)]
        for side, flags in zip(sides, known, strict=True)
    ]
    if all(all(axis) for axis in grown):
        return x
    starts = [
        0 if axis[0] else shapes.maximum(shapes.sub(0, before), 0)
        for (before, _), axis in zip(sides, grown, strict=True)
    ]
    ends = [
        end if axis[1] else shapes.add(extent, shapes.minimum(after, 0))
        for end, extent, (_, after), axis in zip(
            cai.whole(x), cai.sizes(x), sides, grown, strict=True
        )
    ]
    return cai.slice_(x, starts, ends)


_PAD_1D = [
    case(f32(1, 2, 4), [1, 2]),
    case(f32(2, 4), [3, 0]),
    case(f16(2, 4), [-1, 2]),
    case(i32(2, 4), [1, -2]),
]
_PAD_2D = [
    case(f32(1, 2, 4, 5), [1, 2, 3, 0]),
    case(f32(2, 4, 5), [1, 1, 2, 2]),
    case(bf16(2, 4, 5), [-1, 1, 0, -2]),
    case(i64(1, 1, 2, 3), [2, 1, 1, 0]),
]
_PAD_3D = [
    case(f32(1, 2, 3, 4, 5), [1, 2, 3, 0, 1, 2]),
    case(f32(2, 3, 4, 5), [1, 1, 2, 2, 0, 1]),
]


def _pad_then_crop(x: Value, padding: Sequence[Dim], mode: str) -> Value:
    """Pad first and crop then: cropped elements may be mirrored."""
    sides = _per_axis(padding, x.type.rank)
    return _crop(_pad_from_inside(x, _positive(sides), mode), sides)


def _pad_from_inside(x: Value, sides: Sequence[tuple[Dim, Dim]], mode: str) -> Value:
    """Pad with elements of `x`, axis by axis, by copying rows or elements.

    `coreai.pad` takes 0.2 µs for each element of its result: 210 ms for 64 x 128 x 128, where the
    copies take 30 ms (coreai-core 1.0.0b3, x86).
    """
    if cai.may_be_empty(x) or 0 in x.type.shape:
        return cai.pad_op(x, sides, mode=mode)
    for axis, side in enumerate(sides):
        if side != (0, 0):
            x = take(x, _sources(cai.size(x, axis), side, mode), axis)
    return x


def _sources(size: Dim, side: tuple[Dim, Dim], mode: str) -> windows.Table:
    """Return the position inside an axis that each element of the padded axis is copied from."""
    before, after = side
    if shapes.is_static([size, before, after]):
        places = torch.arange(size, dtype=torch.float64)[None, None]
        return functional.pad(places, side, mode=mode)[0, 0].to(torch.int32)
    count = windows.count(shapes.add(shapes.add(before, size), after))
    place = windows.sub(count, _entry(before))
    last = _entry(shapes.sub(size, 1))
    if mode == "replicate":
        return windows.clamp(place, 0, last)
    if mode == "reflect":
        return windows.sub(last, windows.absolute(windows.sub(last, windows.absolute(place))))
    extent = _entry(size)
    return windows.sub(place, windows.mul(windows.floordiv(place, extent), extent))


def _entry(dim: Dim) -> Dim:
    """Return a size as an operand of arithmetic on positions."""
    return windows.value(dim) if isinstance(dim, Value) else dim


@lowers(aten.reflection_pad1d.default, cases=_PAD_1D)
@lowers(aten.reflection_pad2d.default, cases=_PAD_2D)
@lowers(aten.reflection_pad3d.default, cases=_PAD_3D)
def reflection_pad(ctx: Ctx, x: Value, padding: Shape) -> Value:
    return _pad_then_crop(x, padding, "reflect")


@lowers(aten.replication_pad1d.default, cases=[*_PAD_1D, case(f32(2, 2), [5, 4])])
@lowers(aten.replication_pad2d.default, cases=_PAD_2D)
@lowers(aten.replication_pad3d.default, cases=_PAD_3D)
def replication_pad(ctx: Ctx, x: Value, padding: Shape) -> Value:
    return _pad_then_crop(x, padding, "replicate")


@lowers(
    aten._pad_circular.default,
    cases=[
        case(f32(1, 2, 4), [1, 2]),
        case(f32(2, 4), [4, 4]),
        case(f32(1, 2, 4, 5), [1, 2, 3, 0]),
        case(f16(2, 4, 5), [-1, 2, 0, -3]),
        case(i32(1, 2, 3, 4, 5), [1, 2, 3, 0, 1, 2]),
    ],
)
def pad_circular(ctx: Ctx, x: Value, pad: Shape) -> Value:
    """Crop first: cropped elements do not wrap around."""
    sides = _per_axis(pad, x.type.rank)
    return _pad_from_inside(_crop(x, sides), _positive(sides), "circular")
