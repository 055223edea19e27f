"""Lower Fourier transforms to real products with constant matrices.

Up to `DENSE` elements, the transform is one product with its full matrix; `_lib/fourier.py` splits
a longer one into factors. The program looks for the factors of a dynamic length, unless its upper
bound is small.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..ir import dialect as cai
from ..ir import shapes
from ..ir.dialect import Dim, Value
from ..lowering import Ctx, case, lowers
from ..lowering.cases import c64, f32
from ..torch_compat import aten
from ._lib import windows
from ._lib.fourier import (
    DENSE,
    LONGEST,
    Transform,
    Wave,
    by_factors,
    dft_matrix,
    factors_of,
    padded,
    transform,
)
from ._lib.size_bounds import upper_bound

_LONG = (
    "sums of n terms of both signs: the absolute error grows with the sum of their sizes, "
    "which a result near zero does not show"
)
_CLOSE = (1e-5, 3e-5)
_LENGTH = "the length is a number of the case"


def _scale(normalization: int, length: Dim) -> windows.Term:
    """Return 1, `1 / sqrt(length)` or `1 / length`."""
    if normalization == 0:
        return 1.0
    if isinstance(length, int):
        return float(length ** (-0.5 if normalization == 1 else -1.0))
    size = windows.value(windows.number(length))
    return cai.rsqrt(size) if normalization == 1 else cai.div(cai.like(size, 1), size)


def _along(x: Value, matrix: Value, axis: int) -> Value:
    """Multiply an axis by a matrix."""
    order = [*(a for a in range(x.type.rank) if a != axis), axis]
    rows = cai.transpose(x, order)
    lone = rows.type.rank == 1
    rows = cai.expand_dims(rows, [0]) if lone else rows
    found = cai.matmul(rows, matrix)
    found = cai.shrink_dims(found, [0]) if lone else found
    return cai.transpose(found, [order.index(a) for a in range(x.type.rank)])


class _Columns:
    """Move an axis to the front of a matrix `[length, columns]`, and back."""

    def __init__(self, x: Value, axis: int) -> None:
        self.order = [axis, *(a for a in range(x.type.rank) if a != axis)]
        self.others = [d for a, d in enumerate(cai.sizes(x)) if a != axis]
        self.count = shapes.product(self.others)

    def of(self, x: Value) -> Value:
        turned = cai.transpose(x, self.order)
        return cai.reshape(turned, [cai.size(turned, 0), self.count])

    def back(self, x: Value) -> Value:
        turned = cai.reshape(x, [cai.size(x, 0), *self.others])
        return cai.transpose(turned, [self.order.index(a) for a in range(len(self.order))])


@dataclass(frozen=True)
class _Axis:
    """An axis to transform, and the largest length that it may have, if that is known."""

    number: int
    length: Dim
    bound: int | None

    @classmethod
    def of(cls, ctx: Ctx, number: int, length: Dim, size: object) -> _Axis:
        bound = upper_bound(size)
        if not isinstance(length, int) and bound is not None and bound > LONGEST:
            ctx.refuse(
                f"a Fourier transform of a dynamic length of up to {bound:,} is not supported",
                f"export with a static length, or with a maximum of {LONGEST:,}",
            )
        return cls(number, length, bound)

    @property
    def is_dense(self) -> bool:
        return self.bound is not None and self.bound <= DENSE

    def multiply(self, matrix: Wave, x: Sequence[Value], real_only: bool = False) -> list[Value]:
        return matrix.times(x, lambda table, part: _along(part, table, self.number), real_only)

    def forward(
        self, x: Sequence[Value], normalization: int, kept: Dim, real_only: bool = False
    ) -> list[Value]:
        """Return the first `kept` elements of the transform; `x` is padded with zeros."""
        scale = _scale(normalization, self.length)
        if self.is_dense:
            return self.multiply(
                dft_matrix(self.length, kept, self.length).scaled(scale), x, real_only
            )
        columns = _Columns(x[0], self.number)
        signal = [padded(columns.of(part), self.length) for part in x]
        wanted = Transform(columns.count, kept, real_only, scale)
        if isinstance(self.length, int):
            found = by_factors(signal, factors_of(self.length), wanted)
        else:
            found = transform(signal, self.length, self.bound, wanted)
        return [columns.back(part) for part in found]


def _complex_passes(
    ctx: Ctx, x: Sequence[Value], axes: Sequence[int], normalization: int, forward: bool
) -> list[Value]:
    """Transform real and imaginary part; an inverse transform exchanges them."""
    parts, sizes = list(x if forward else x[::-1]), ctx.fake("self").shape
    for number in axes:
        length = cai.size(parts[0], number)
        axis = _Axis.of(ctx, number, length, sizes[number])
        parts = axis.forward(parts, normalization, length)
    return parts if forward else parts[::-1]


@lowers(
    aten._fft_c2c.default,
    cases=[
        case(c64(8), [0], 0, True, tolerance=_CLOSE, because=_LONG),
        case(c64(3, 5), [1], 1, False, tolerance=_CLOSE, because=_LONG),
        case(c64(3, 4), [0, 1], 2, True, tolerance=_CLOSE, because=_LONG),
        *(
            case(c64(*shape, fixed=True), [axis], 1, forward, tolerance=_CLOSE, because=_LONG)
            for shape, axis, forward in (
                ((2, 384), 1, True),
                ((384, 2), 0, False),
                ((521,), 0, True),  # a prime above 256
                ((1042,), 0, False),  # twice that prime
            )
        ),
    ],
)
def fft_c2c(ctx: Ctx, x: Value, dim: Sequence[int], normalization: int, forward: bool) -> Value:
    parts = cai.real_part(x), cai.imaginary_part(x)
    axes = [axis % x.type.rank for axis in dim]
    return cai.create_complex(*_complex_passes(ctx, parts, axes, normalization, forward))


@lowers(
    aten._fft_r2c.default,
    cases=[
        case(f32(8), [0], 0, True, tolerance=_CLOSE, because=_LONG),
        case(f32(3, 7), [1], 1, True, tolerance=_CLOSE, because=_LONG),
        case(f32(3, 6), [1], 2, False, tolerance=_CLOSE, because=_LONG),
        case(f32(4, 6), [0, 1], 0, True, tolerance=_CLOSE, because=_LONG),
        *(
            case(f32(*shape, fixed=True), axes, 1, onesided, tolerance=_CLOSE, because=_LONG)
            for shape, axes, onesided in (
                ((2, 384), [1], True),
                ((3, 1125), [1], False),  # three factors, all odd
                ((514, 2), [0], True),  # a factor of 2, and a prime above 256
                ((521,), [0], True),
                ((300, 3), [1, 0], True),
            )
        ),
    ],
)
def fft_r2c(ctx: Ctx, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    *rest, last = [axis % x.type.rank for axis in dim]
    length = cai.size(x, last)
    kept = shapes.add(shapes.floordiv(length, 2), 1) if onesided else length
    axis = _Axis.of(ctx, last, length, ctx.fake("self").shape[last])
    parts = axis.forward([x], normalization, kept)
    real, imaginary = _complex_passes(ctx, parts, rest, normalization, True)
    lengths = [(a, cai.size(x, a)) for a in rest] + [(last, length)]
    return cai.create_complex(real, _without_real_bins(imaginary, lengths))


def _without_real_bins(imaginary: Value, lengths: Sequence[tuple[int, Dim]]) -> Value:
    """Replace imaginary parts by 0 in the bins that are real for a real signal, as torch does.

    A rounding error instead would turn an angle of pi to -pi. `lengths` are the transformed axes.
    """
    masks = []
    for axis, length in lengths:
        rows = cai.size(imaginary, axis)
        if isinstance(rows, int) and isinstance(length, int):
            mask: windows.Table = 2 * torch.arange(rows) % length == 0
        else:
            twice = cai.mul(windows.value(windows.count(rows)), cai.i32(2))
            mask = cai.equal(cai.modulo(twice, shapes.number(length)), cai.i32(0))
        masks.append(windows.along(mask, axis, imaginary.type.rank))
    is_real = windows.value(functools.reduce(windows.both, masks))
    return cai.where(is_real, cai.like(imaginary, 0), imaginary)


def _mirror_weights(kept: Dim, length: Dim) -> windows.Table:
    """Return 2 for frequencies that also represent their mirror image, 1 for first and middle."""
    number = windows.count(kept)
    twice = windows.mul(number, 2)
    paired = windows.both(windows.greater(number, 0), windows.greater(length, twice))
    return windows.add(windows.cast(paired, torch.float32), 1.0)


@lowers(
    aten._fft_c2r.default,
    cases=[
        case(c64(5), [0], 0, 8, tolerance=_CLOSE, because=_LONG),
        case(c64(3, 4), [1], 2, 7, static_only=_LENGTH, tolerance=_CLOSE, because=_LONG),
        case(c64(4, 4), [0, 1], 1, 6, static_only=_LENGTH, tolerance=_CLOSE, because=_LONG),
        *(
            case(c64(*shape, fixed=True), [0], 1, length, tolerance=_CLOSE, because=_LONG)
            for shape, length in (((193, 2), 384), ((563,), 1125), ((261,), 521))
        ),
    ],
)
def fft_c2r(
    ctx: Ctx, x: Value, dim: Sequence[int], normalization: int, last_dim_size: Dim
) -> Value:
    *rest, last = [axis % x.type.rank for axis in dim]
    parts = cai.real_part(x), cai.imaginary_part(x)
    real, imaginary = _complex_passes(ctx, parts, rest, normalization, False)
    length = last_dim_size
    kept = shapes.add(shapes.floordiv(length, 2), 1)
    imaginary = _without_real_bins(imaginary, [(last, length)])
    half = [cai.slice_axis(part, last, 0, kept) for part in (real, imaginary)]
    axis = _Axis.of(ctx, last, length, ctx.fake("last_dim_size"))
    # The real part of the inverse transform is that of the forward one of the conjugate.
    weight = _mirror_weights(kept, length)
    if axis.is_dense:
        matrix = dft_matrix(kept, length, length).scaled(_scale(normalization, length))
        rows = windows.column(weight)
        sine = windows.mul(windows.mul(matrix.sine, rows), -1.0)
        return axis.multiply(Wave(windows.mul(matrix.cosine, rows), sine), half, True)[0]
    weight = windows.along(weight, last, x.type.rank)
    signs = (1.0, -1.0)
    half = [
        cai.mul(p, windows.value(windows.mul(weight, s))) for p, s in zip(half, signs, strict=True)
    ]
    return axis.forward(half, normalization, length, real_only=True)[0]
