"""Lower ops that change only the shape or the order of elements."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.composite import Composite
from ...ir.dialect import Dim, Value
from ...lowering import Axes, Ctx, Shape, case, lowers
from ...lowering.cases import b1, c64, f16, f32, i32, i64
from ...torch_compat import aten

_INF, _NAN = float("inf"), float("nan")
_NUMBERS = "the sizes are numbers of the case"


@lowers(
    aten.view.default,
    aten.view_copy.default,
    aten._unsafe_view.default,
    cases=[
        case(f32(2, 6), [3, 4], static_only=_NUMBERS),
        case(f32(2, 3), [-1]),
        case(f32(), [1, 1]),
        case(f32(1), []),
        case(i64(4, 3), [2, -1], static_only=_NUMBERS),
        case(b1(4), [2, 2], static_only=_NUMBERS),
    ],
)
def view(ctx: Ctx, x: Value, size: Shape) -> Value:
    return cai.reshape(x, ctx.dims(size))


@lowers(
    aten.permute.default,
    aten.permute_copy.default,
    cases=[
        case(f32(2, 3, 4), [2, 0, 1]),
        case(f32(2, 3), [-1, 0]),
        case(f32(2, 3), [0, 1]),
        case(c64(2, 3), [1, 0]),
        case(f32(), []),
    ],
)
def permute(ctx: Ctx, x: Value, dims: Sequence[int]) -> Value:
    return cai.transpose(x, [d % max(len(dims), 1) for d in dims])


@lowers(aten.unsqueeze.default, cases=[case(f32(2, 3), 0), case(f32(2, 3), -1), case(f32(), 0)])
def unsqueeze(ctx: Ctx, x: Value, dim: int) -> Value:
    return cai.expand_dims(x, [dim % (x.type.rank + 1)])


@lowers(aten.squeeze.default, cases=[case(f32(1, 2, 1)), case(f32(2, 3)), case(f32())])
def squeeze_all(ctx: Ctx, x: Value) -> Value:
    return cai.shrink_dims(x, [d for d, extent in enumerate(x.type.shape) if extent == 1])


@lowers(
    aten.squeeze.dims,
    cases=[case(f32(1, 2, 1), [0, -1]), case(f32(2, 1), [0]), case(f32(1, 2), [])],
)
def squeeze_dims(ctx: Ctx, x: Value, dim: Sequence[int]) -> Value:
    """Squeeze the given axes; an empty list means no axis (in reductions: all axes)."""
    axes = [d % max(x.type.rank, 1) for d in dim] if x.type.rank else []
    return cai.shrink_dims(x, [d for d in axes if x.type.shape[d] == 1])


@lowers(
    aten.squeeze.dim,
    cases=[case(f32(2, 1, 3), 1), case(f32(2, 3), 1), case(f32(1, 2), -2), case(f32(), 0)],
)
def squeeze(ctx: Ctx, x: Value, dim: Axes) -> Value:
    return cai.shrink_dims(x, [d for d in dim if x.type.shape[d] == 1])


@lowers(
    aten.expand.default,
    aten.expand_copy.default,
    ignore=("implicit",),  # a hint for vmap; the result is the same
    cases=[
        case(f32(2, 1), [2, 3], static_only=_NUMBERS),
        case(f32(3), [2, -1], implicit=True),
        case(f32(), [2, 2]),
        case(f32(2, 3), [-1, -1]),
        case(i64(1, 2), [4, -1]),
        case(b1(1), [3]),
    ],
)
def expand(ctx: Ctx, x: Value, size: Shape) -> Value:
    lead = len(size) - x.type.rank
    kept = [
        cai.size(x, i - lead) if isinstance(d, int) and d == -1 else d
        for i, d in enumerate(ctx.dims(size))
    ]
    return cai.broadcast_to(x, kept)


@lowers(
    aten.flip.default,
    cases=[
        case(f32(2, 3), [0]),
        case(f32(2, 3), [0, -1]),
        case(i32(2, 3), [1]),
        case(b1(3), [0]),
        case(c64(3), [0]),
        case(f32(2), []),
        case(f32(), [0]),
        case(f32(2, 9, 70), [1]),
        case(f32(3, 5, 70), [0, 2]),
        case(f32(2, 3, 5, 20), [1, 2]),
        case(f32(2, 1, 300), [1, 2]),
        case(f16(9, 50), [1]),
        case(b1(20, 30), [0, 1]),
        case(i64(10, 30, 3), [0]),
        case(c64(10, 30), [1]),
        case(f32(300, values=(_NAN, _INF, -0.0, 2.0)), [0]),
        case(f32(16_400), [0]),  # reversed as two axes
        case(f32(8_209), [0]),  # a prime number
        case(f32(3_000, 3), [0]),
    ],
)
def flip(ctx: Ctx, x: Value, dims: Sequence[int]) -> Value:
    return cai.reverse(x, [d % x.type.rank for d in dims]) if x.type.rank else x


@lowers(
    aten.roll.default,
    cases=[
        case(f32(3, 4), [1], [0]),
        case(f32(3, 4), [-1, 2], [0, 1]),
        case(f32(3, 4), [1, 1], [1, 1]),
        case(i32(3, 4), [7], [-1]),
        case(f16(2, 3), [2]),
        case(b1(5), [-6], [0]),
        case(c64(5), [2]),
        case(c64(3, 4), [1, -1], [0, 1]),
        case(f32(2, 3, 4, 5), [-1, 2], [1, 2]),
        case(f32(2, 5, 6, 70), [-1, 2], [1, 2]),
        case(f32(2, 3, 4, fixed=True), [-1, 5], [1, 2]),
        case(f32(2, 3, 4, fixed=True), [1, 1], [2, 0]),
        case(f32(), [1]),
    ],
)
def roll(ctx: Ctx, x: Value, shifts: Shape, dims: Sequence[int]) -> Value:
    if x.type.rank == 0 or 0 in x.type.shape:
        return x
    if not dims:
        whole = cai.reshape(x, [shapes.product(cai.sizes(x))])
        return cai.reshape(rolled(whole, shifts, [0]), cai.sizes(x))
    return rolled(x, shifts, [dim % x.type.rank for dim in dims])


def rolled(x: Value, shifts: Sequence[Dim], axes: Sequence[int]) -> Value:
    """Concatenate the two parts of each axis in the other order."""
    for shift, axis in zip(shifts, axes, strict=True):
        extent = cai.size(x, axis)
        turns = shapes.floordiv(shift, shapes.maximum(extent, 1))
        cut = shapes.sub(extent, shapes.sub(shift, shapes.mul(turns, extent)))
        ends = cai.slice_axis(x, axis, cut, extent), cai.slice_axis(x, axis, 0, cut)
        x = cai.reshape(cai.concat(axis, ends), cai.sizes(x))
    return x


@lowers(
    aten.pixel_shuffle.default,
    cases=[
        case(f32(1, 8, 2, 3), 2),
        case(f32(2, 2, 9, 2, 2), 3),
        case(f32(4, 3, 2), 2),
        case(f16(1, 4, 2, 2), 2),
        case(i32(1, 4, 2, 2), 2),
        case(f32(1, 3, 2, 2), 1),
    ],
)
def pixel_shuffle(ctx: Ctx, x: Value, upscale_factor: int) -> Value:
    r = int(upscale_factor)

    def shuffle(input: Value) -> Value:
        *lead, channels, height, width = cai.sizes(input)
        n = len(lead)
        kept = shapes.floordiv(channels, r * r)
        blocks = cai.reshape(input, [*lead, kept, r, r, height, width])
        order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
        rows, columns = shapes.mul(height, r), shapes.mul(width, r)
        return cai.reshape(cai.transpose(blocks, order), [*lead, kept, rows, columns])

    contract = Composite("pixel_shuffle", inputs=("input",), attrs={"upscale_factor": r})
    (output,) = ctx.emit(contract, shuffle, x)
    return output
