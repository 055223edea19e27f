"""Lower Fourier transforms to real products with constant matrices.

Up to `DENSE` elements, the transform is one product with its full matrix; `_lib/fourier.py` splits
a longer one into factors. The program looks for the factors of a dynamic length, unless its upper
bound is small (`_lib/fourier_dynamic.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir import dialect as cai
from ..ir import shapes
from ..ir.dialect import Dim, Value
from ..lowering import Ctx, case, lowers
from ..lowering.cases import c64, f32
from ..torch_compat import aten
from ._lib import fourier_dynamic as dynamic
from ._lib import windows
from ._lib.fourier import DENSE, Signal, inverse_to_real, transform, transform_of_real
from ._lib.size_bounds import upper_bound

_LONG = (
    "sums of n terms of both signs: the absolute error grows with the sum of their sizes, "
    "which a result near zero does not show"
)
_CLOSE = (1e-5, 3e-5)
_LENGTH = "the length is a number of the case"


def _waves(rows: Dim, columns: Dim, length: Dim) -> tuple[windows.Table, windows.Table]:
    """Return cosine and sine of `2 pi j k / length`; whole turns are removed as integers.

    A dynamic length is at most 256: above 46,340 the product `j k` exceeds 32 bits.
    """
    turns = windows.mul(windows.column(windows.count(rows)), windows.row(windows.count(columns)))
    if isinstance(turns, Value):
        turns = cai.modulo(turns, shapes.number(length))
        step = cai.div(cai.constant(2 * math.pi, torch.float32), windows.number(length))
        angle = cai.mul(cai.cast(turns, torch.float32), step)
        return cai.cos(angle), cai.sin(angle)
    angle = (turns % length).to(torch.float64) * (2 * math.pi / length)
    return angle.cos(), angle.sin()


def _scale(normalization: int, length: Dim) -> windows.Term:
    """Return 1, `1 / sqrt(length)` or `1 / length`."""
    if normalization == 0:
        return 1.0
    if isinstance(length, int):
        return float(length ** (-0.5 if normalization == 1 else -1.0))
    size = windows.value(windows.number(length))
    return cai.rsqrt(size) if normalization == 1 else cai.div(cai.like(size, 1), size)


def _matrix(table: windows.Table) -> Value:
    """Return a table as an f32 value."""
    return windows.value(windows.cast(table, torch.float32))


def _along(x: Value, table: windows.Table, axis: int) -> Value:
    """Multiply an axis by a matrix."""
    order = [*(a for a in range(x.type.rank) if a != axis), axis]
    rows = cai.transpose(x, order)
    lone = rows.type.rank == 1
    rows = cai.expand_dims(rows, [0]) if lone else rows
    found = cai.matmul(rows, _matrix(table))
    found = cai.shrink_dims(found, [0]) if lone else found
    return cai.transpose(found, [order.index(a) for a in range(x.type.rank)])


def _is_long(length: Dim) -> bool:
    return isinstance(length, int) and length > DENSE


@dataclass(frozen=True)
class _DynamicPlan:
    """A transform of a dynamic length, which may have an upper bound."""

    bound: int | None

    @classmethod
    def of(cls, ctx: Ctx, size: Any) -> _DynamicPlan | None:
        """Return the plan of a transform, or None if its full matrix is faster."""
        if isinstance(size, int):
            return None
        found = upper_bound(size)
        if found is not None and found > dynamic.LONGEST:
            ctx.refuse(
                f"a Fourier transform of a dynamic length of up to {found:,} is not supported",
                f"export with a static length, or with a maximum of {dynamic.LONGEST:,}",
            )
        return None if found is not None and found <= dynamic.DENSE else cls(found)

    def transform(
        self,
        parts: list[Value],
        axis: int,
        length: Value,
        sign: int,
        scale: windows.Term,
        kept: Dim | None = None,
    ) -> tuple[Value, Value]:
        columns = _Columns(parts[0], axis)
        signal = Signal([columns.of(part) for part in parts])
        wanted = dynamic.Transform(columns.count, sign, kept, scale=scale)
        found = dynamic.Length(length, self.bound).transform(signal, wanted)
        real, imaginary = map(columns.back, found.blocks)
        return real, imaginary


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


def _complex_pass(
    real: Value,
    imaginary: Value,
    axis: int,
    normalization: int,
    forward: bool,
    plan: _DynamicPlan | None = None,
) -> tuple[Value, Value]:
    length = cai.size(real, axis)
    scale, sign = _scale(normalization, length), -1 if forward else 1
    if plan is not None and isinstance(length, Value):
        return plan.transform([real, imaginary], axis, length, sign, scale)
    if isinstance(length, int) and length > DENSE and isinstance(scale, float):
        columns = _Columns(real, axis)
        signal = Signal([columns.of(real), columns.of(imaginary)])
        found = transform(signal, length, columns.count, sign, scale).blocks
        return columns.back(found[0]), columns.back(found[1])
    cosine, sine = (windows.mul(w, scale) for w in _waves(length, length, length))
    sine = windows.mul(sine, float(sign))
    return (
        cai.sub(_along(real, cosine, axis), _along(imaginary, sine, axis)),
        cai.add(_along(real, sine, axis), _along(imaginary, cosine, axis)),
    )


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
    real, imaginary = cai.real_part(x), cai.imaginary_part(x)
    for axis in dim:
        axis = axis % x.type.rank
        plan = _DynamicPlan.of(ctx, ctx.fake("self").shape[axis])
        real, imaginary = _complex_pass(real, imaginary, axis, normalization, forward, plan)
    return cai.create_complex(real, imaginary)


def _real_pass(
    x: Value, axis: int, normalization: int, kept: Dim, plan: _DynamicPlan | None
) -> tuple[Value, Value]:
    length = cai.size(x, axis)
    scale = _scale(normalization, length)
    if plan is not None and isinstance(length, Value):
        return plan.transform([x], axis, length, -1, scale, None if kept is length else kept)
    if _is_long(length) and isinstance(scale, float):
        columns = _Columns(x, axis)
        found = transform_of_real(columns.of(x), length, columns.count, scale, kept).blocks
        return columns.back(found[0]), columns.back(found[1])
    cosine, sine = (windows.mul(w, scale) for w in _waves(length, kept, length))
    return _along(x, cosine, axis), _along(x, windows.mul(sine, -1.0), axis)


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
    shape = ctx.fake("self").shape
    plan = _DynamicPlan.of(ctx, shape[last])
    real, imaginary = _real_pass(x, last, normalization, kept, plan)
    for axis in rest:
        plan = _DynamicPlan.of(ctx, shape[axis])
        real, imaginary = _complex_pass(real, imaginary, axis, normalization, True, plan)
    return cai.create_complex(real, imaginary)


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
    real, imaginary = cai.real_part(x), cai.imaginary_part(x)
    for axis in rest:
        plan = _DynamicPlan.of(ctx, ctx.fake("self").shape[axis])
        real, imaginary = _complex_pass(real, imaginary, axis, normalization, False, plan)
    length, scale = last_dim_size, _scale(normalization, last_dim_size)
    plan = _DynamicPlan.of(ctx, ctx.fake("last_dim_size"))
    if plan is not None and isinstance(length, Value):
        columns = _Columns(real, last)
        half = Signal([columns.of(real), columns.of(imaginary)])
        whole = dynamic.hermitian(half, length)
        wanted = dynamic.Transform(columns.count, 1, is_real=True, scale=scale)
        found = dynamic.Length(length, plan.bound).transform(whole, wanted)
        return columns.back(found.blocks[0])
    if _is_long(length) and isinstance(scale, float):
        columns = _Columns(real, last)
        half = Signal([columns.of(real), columns.of(imaginary)])
        return columns.back(inverse_to_real(half, length, columns.count, scale))
    kept = shapes.add(shapes.floordiv(length, 2), 1)
    real, imaginary = (cai.slice_axis(p, last, 0, kept) for p in (real, imaginary))
    weight = windows.column(windows.mul(_mirror_weights(kept, length), scale))
    cosine, sine = (windows.mul(w, weight) for w in _waves(kept, length, length))
    return cai.sub(_along(real, cosine, last), _along(imaginary, sine, last))
