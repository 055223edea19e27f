"""Lower constant, reflection, replication and circular padding; negative padding crops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, Number, Shape, case, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .._lib.size_bounds import is_never_negative


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
    sides = per_axis(pad, x.type.rank)
    grows = per_axis([is_never_negative(count) for count in ctx.fake("pad")], x.type.rank)
    return filled(crop(x, sides, grows), positive(sides, grows), value)


def filled(x: Value, padding: Sides, value: Number) -> Value:
    """Return `x` with a number around it."""
    if cai.is_complex(x):  # coreai.pad of complex values crashes the process (1.0.0b3)
        values = (value.real, value.imag) if isinstance(value, complex) else (value, 0)
        parts = cai.real_part(x), cai.imaginary_part(x)
        padded = (cai.pad(p, padding, cai.like(p, v)) for p, v in zip(parts, values, strict=True))
        return cai.create_complex(*padded)
    return cai.pad(x, padding, cai.like(x, value))


Sides: TypeAlias = Sequence[tuple[Dim, Dim]]  # (before, after) for each axis


def per_axis(pad: Sequence[Dim], rank: int) -> list[tuple[Dim, Dim]]:
    """Return (before, after) for every axis; torch lists the last axis first."""
    pairs: list[tuple[Dim, Dim]] = [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def positive(sides: Sides, grows: Sides | None = None) -> list[tuple[Dim, Dim]]:
    """Return the padding without negative counts; `grows` marks those known to be none."""
    known = grows or [(False, False)] * len(sides)
    return [
        (a if before else shapes.maximum(a, 0), b if after else shapes.maximum(b, 0))
        for (a, b), (before, after) in zip(sides, known, strict=True)
    ]


def crop(x: Value, sides: Sides, grows: Sides | None = None) -> Value:
    """Return `x` without the elements that negative padding removes.

    It is left out if all counts are known to be positive: `(7 - n % 7) % 7` is.
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


def _pad(x: Value, sides: Sides, mode: str) -> Value:
    return cai.pad(x, sides, mode=mode)


def pad_then_crop(
    x: Value, padding: Sequence[Dim], mode: str, pad: Callable[..., Value] = _pad
) -> Value:
    """Pad first and crop then: cropped elements may be mirrored."""
    sides = per_axis(padding, x.type.rank)
    return crop(pad(x, positive(sides), mode), sides)


@lowers(aten.reflection_pad1d.default, cases=_PAD_1D)
@lowers(aten.reflection_pad2d.default, cases=_PAD_2D)
@lowers(aten.reflection_pad3d.default, cases=_PAD_3D)
def reflection_pad(ctx: Ctx, x: Value, padding: Shape) -> Value:
    return pad_then_crop(x, padding, "reflect")


@lowers(aten.replication_pad1d.default, cases=[*_PAD_1D, case(f32(2, 2), [5, 4])])
@lowers(aten.replication_pad2d.default, cases=_PAD_2D)
@lowers(aten.replication_pad3d.default, cases=_PAD_3D)
def replication_pad(ctx: Ctx, x: Value, padding: Shape) -> Value:
    return pad_then_crop(x, padding, "replicate")


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
    sides = per_axis(pad, x.type.rank)
    return cai.pad(crop(x, sides), positive(sides), mode="circular")
