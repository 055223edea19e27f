"""Lower sum, mean, prod, max, min, argmax, argmin, any and all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Value
from ...lowering import Axes, Axis, Ctx, case, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .complex_products import product

Reduce: TypeAlias = Callable[[Value, Sequence[int]], Value]
Search: TypeAlias = Callable[[Value, int, bool, bool], Value]

_NAN, _INF = float("nan"), float("inf")
_SPECIAL = (1.0, _NAN, 3.0, _INF, -_INF, 2.0, -0.0, 0.0, 0.0, -1.0, -1.0, -2.0)
_INT_EDGES = (2**31 - 1, -(2**31), 2**24 + 1, 2**24, 0, -1)

# The runtime (1.0.0b3) sums sequentially: 10**6 terms of 0.1 have an error of 1 %, 10**5 random
# terms of 1.4e-5. Runs of 1024 terms stay within 1e-6.
_LONGEST_RUN, _RUN = 8192, 1024
# In half precision the last of 11 digits hides this error up to 65,536 terms.
_LONGEST_HALF_RUN = 65_536
# NaN counts as infinity here, as no infinity precedes it.
_WITH_NAN = (1.0, _NAN, 3.0, -2.0, _NAN, 2.0)


def drop_axes(reduced: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """Drop the reduced axes, which the dialect keeps at size 1, unless `keepdim`."""
    return reduced if keepdim else cai.shrink_dims(reduced, list(axes))


def count(x: Value, axes: Sequence[int]) -> Value:
    """Return the number of elements along these axes, as float32."""
    terms = shapes.product([cai.size(x, a) for a in axes])
    if isinstance(terms, int):
        return cai.constant(float(terms), torch.float32)
    return cai.raw_cast(terms, torch.float32)


def total(x: Value, axes: Sequence[int]) -> Value:
    """Return the sum with axes kept; long float sums run in stages for accuracy."""
    if cai.is_complex(x):
        parts = (total(part(x), axes) for part in (cai.real_part, cai.imaginary_part))
        return cai.create_complex(*parts)
    if cai.is_bool(x):
        return cai.any_(x, axes)
    if not cai.is_float(x) or not _is_long(x, axes):
        return cai.reduce_sum(x, axes)
    for axis in axes:
        x = _axis_total(x, axis)
    return x


def average(x: Value, axes: Sequence[int]) -> Value:
    """Return the mean, with axes kept."""
    if cai.is_float(x) and not _is_long(x, axes):
        return cai.reduce_mean(x, axes)
    if cai.is_complex(x):
        return cai.div(total(x, axes), cai.cast(count(x, axes), torch.complex64))
    if cai.dtype(x).itemsize == 2 or _has_short_axes(x, axes):  # a sum would overflow in float16
        return _average_of_averages(x, axes)
    wide = cai.cast(x, torch.float32)
    return cai.cast(cai.div(total(wide, axes), count(x, axes)), cai.dtype(x))


def _average_of_averages(x: Value, axes: Sequence[int]) -> Value:
    """Return the mean, one axis after the other and in runs that divide a long one."""
    for axis in reversed(axes):
        extent = x.type.shape[axis]
        run = next((d for d in range(_LONGEST_HALF_RUN, 1, -1) if extent % d == 0), 0)
        if extent > _LONGEST_HALF_RUN and run:
            dims = list(cai.sizes(x))
            dims[axis : axis + 1] = [extent // run, run]
            runs = cai.reduce_mean(cai.reshape(x, dims), [axis + 1])
            x = cai.shrink_dims(runs, [axis + 1])
        x = cai.reduce_mean(x, [axis])
    return x


def _longest_run(x: Value) -> int:
    return _LONGEST_RUN if cai.dtype(x).itemsize > 2 else _LONGEST_HALF_RUN


def _is_long(x: Value, axes: Sequence[int]) -> bool:
    """Return whether a sum over these axes is long, or might be with several dynamic axes."""
    if any(x.type.is_dynamic_dim(a) for a in axes):
        return len(axes) > 1 and cai.dtype(x).itemsize > 2
    return math.prod(int(x.type.shape[a]) for a in axes) > _longest_run(x)


def _has_short_axes(x: Value, axes: Sequence[int]) -> bool:
    extents = [x.type.shape[a] for a in axes]
    return cai.dtype(x) == torch.float32 and all(0 < extent <= _LONGEST_RUN for extent in extents)


def _axis_total(x: Value, axis: int) -> Value:
    extent = x.type.shape[axis]
    if x.type.is_dynamic_dim(axis) or extent <= _longest_run(x):
        return cai.reduce_sum(x, [axis])
    run = next((d for d in range(_RUN, _RUN // 8, -1) if extent % d == 0), _RUN)
    padding = [(0, -extent % run if a == axis else 0) for a in range(x.type.rank)]
    dims = list(cai.sizes(x))
    dims[axis : axis + 1] = [-(-extent // run), run]
    runs = cai.reduce_sum(cai.reshape(cai.pad(x, padding), dims), [axis + 1])
    return _axis_total(cai.shrink_dims(runs, [axis + 1]), axis)


@lowers(
    aten.sum.dim_IntList,
    ignore=("dtype",),  # ctx.out has it
    cases=[
        case(f32(2, 3, 4), [1]),
        case(f32(2, 3, 4), [-1, 0], True),
        case(f32(2, 3), None),
        case(f32(2, 3), []),
        case(f32(), [0]),
        case(f32(), []),
        case(f32(2, 6, values=_SPECIAL), [1]),
        case(f32(100, 1001, low=0, high=1), [0, 1]),
        case(f32(9973, 2, low=0, high=1), [0]),
        case(f16(2, 4000, values=(0.1, 0.2)), [1]),
        case(f16(20000, values=(0.001,)), [0]),
        case(bf16(2, 3), [1]),
        case(i64(2, 3), [1]),
        case(i64(3, values=(2**24, 1, 2**24)), [0]),
        case(i32(2, 3), [0], dtype=torch.float32),
        case(i8(200, values=(127,)), [0]),
        case(u8(200, values=(255,)), [0]),
        case(b1(2, 3), [1], True),
        case(b1(2, 3), [1], dtype=torch.float16),
        case(f32(2, 3), [1], dtype=torch.int64),
        case(f32(2, 2, values=(0.0, 0.0, 0.5, 0.0)), [1], dtype=torch.bool),
        case(i32(3, values=(100,)), [0], dtype=torch.int8),
        case(f16(2, 3), [1], dtype=torch.float32),
        case(c64(2, 3), [1]),
        case(f32(2, 0), [1], static_only="a zero-size operand"),
    ],
)
def sum_(ctx: Ctx, x: Value, dim: Axes, keepdim: bool) -> Value:
    return drop_axes(total(cai.cast(x, ctx.out_dtype), dim), dim, keepdim)


@lowers(
    aten.mean.dim,
    ignore=("dtype",),  # ctx.out has it
    cases=[
        case(f32(2, 3, 4), [1]),
        case(f32(2, 3, 4), [-1, 0], True),
        case(f32(2, 3), None),
        case(f32(), [0]),
        case(f32(2, 6, values=_SPECIAL), [1]),
        case(f32(100, 1001, low=0, high=1), [0, 1]),
        case(f16(2, 4000, values=(60000.0, 50000.0)), [1]),
        case(bf16(2, 3), [1]),
        case(i32(2, 3), [0], dtype=torch.float32),
        case(f16(2, 3), [1], dtype=torch.float32),
        case(c64(2, 3), [1]),
        case(f32(2, 0), [1], static_only="a zero-size operand"),
    ],
)
def mean(ctx: Ctx, x: Value, dim: Axes, keepdim: bool) -> Value:
    return drop_axes(average(cai.cast(x, ctx.out_dtype), dim), dim, keepdim)


@lowers(
    aten.mean.default,
    ignore=("dtype",),  # ctx.out has it
    cases=[
        case(f32(2, 3)),
        case(f32()),
        case(f16(2, 3)),
        case(b1(2, 3), dtype=torch.float32),
        case(f32(0), static_only="a zero-size operand"),
    ],
)
def mean_of_all(ctx: Ctx, x: Value) -> Value:
    axes = Axes(tuple(range(x.type.rank)))
    return mean(ctx, x, axes, False)


def _product(ctx: Ctx, x: Value, axes: Sequence[int], keepdim: bool) -> Value:
    x_cast = cai.cast(x, ctx.out_dtype)
    if cai.is_complex(x_cast):
        for axis in axes:
            x_cast = product(ctx, x_cast, axis)
        return drop_axes(x_cast, axes, keepdim)
    if cai.is_bool(x_cast):
        return drop_axes(cai.all_(x_cast, axes), axes, keepdim)
    return drop_axes(cai.reduce_product(x_cast, axes), axes, keepdim)


@lowers(
    aten.prod.dim_int,
    ignore=("dtype",),  # ctx.out has it
    cases=[
        case(f32(2, 3), 1),
        case(f32(2, 3), -2, True),
        case(f32(), 0),
        case(f32(2, 6, values=_SPECIAL), 1),
        case(f16(3, values=(0.01, 0.01, 10000.0)), 0),
        case(bf16(2, 3), 1),
        case(i64(2, 3), 1),
        case(i8(4, values=(127,)), 0, static_only="the product of five numbers exceeds 32 bits"),
        case(b1(2, 3), 1),
        case(i32(2, 3), 0, dtype=torch.float32),
        case(f32(2, values=(1.5, 2.5)), 0, dtype=torch.int64),
        case(i32(2, 3), 1, dtype=torch.bool),
        case(c64(2, 5, fixed=True), 1),
        case(c64(1, 3, fixed=True), 0, True),
        case(f32(2, 0), 1, static_only="a zero-size operand"),
    ],
)
def prod(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> Value:
    return _product(ctx, x, [dim] if x.type.rank else [], keepdim)


@lowers(
    aten.prod.default,
    ignore=("dtype",),  # ctx.out has it
    cases=[
        case(f32(2, 3)),
        case(f32()),
        case(i64(2, 3, low=1, high=5)),
        case(c64(2, 3, fixed=True)),
        case(c64()),
        case(b1(2, 3), dtype=torch.float32),
        case(f32(0), static_only="a zero-size operand"),
    ],
)
def prod_of_all(ctx: Ctx, x: Value) -> Value:
    return _product(ctx, x, range(x.type.rank), False)


def _extreme(reduce: Reduce, reduce_bool: Reduce, x: Value, axes: Sequence[int]) -> Value:
    return reduce_bool(x, axes) if cai.is_bool(x) else reduce(x, axes)


def greatest(x: Value, axes: Sequence[int]) -> Value:
    """Return the maximum, axes kept; NaN propagates, and for booleans it is `any`."""
    return _extreme(cai.reduce_max, cai.any_, x, axes)


def least(x: Value, axes: Sequence[int]) -> Value:
    """Return the minimum, axes kept; NaN propagates, and for booleans it is `all`."""
    return _extreme(cai.reduce_min, cai.all_, x, axes)


_EXTREMES = [
    case(f32(2, 3, 4), [1]),
    case(f32(2, 3, 4), [-1, 0], True),
    case(f32(2, 3)),
    case(f32()),
    case(f32(2, 6, values=_SPECIAL), [1]),
    case(f16(2, 6, values=_SPECIAL), [0]),
    case(bf16(2, 3), [1]),
    case(i64(2, 3), [1]),
    case(i32(2, 3, values=_INT_EDGES), [1]),
    case(u8(2, 3), [1]),
    case(b1(3, 4), [1]),
    case(b1()),
]


@lowers(aten.amax.default, cases=_EXTREMES)
def amax(ctx: Ctx, x: Value, dim: Axes, keepdim: bool) -> Value:
    return drop_axes(greatest(x, dim), dim, keepdim)


@lowers(aten.amin.default, cases=_EXTREMES)
def amin(ctx: Ctx, x: Value, dim: Axes, keepdim: bool) -> Value:
    return drop_axes(least(x, dim), dim, keepdim)


_OF_ALL = [
    case(f32(2, 3)),
    case(f32()),
    case(i64(2, 3)),
    case(b1(4)),
    case(f16(4, values=_SPECIAL)),
]


@lowers(aten.max.default, cases=_OF_ALL)
def max_of_all(ctx: Ctx, x: Value) -> Value:
    axes = range(x.type.rank)
    return drop_axes(greatest(x, axes), axes, False)


@lowers(aten.min.default, cases=_OF_ALL)
def min_of_all(ctx: Ctx, x: Value) -> Value:
    axes = range(x.type.rank)
    return drop_axes(least(x, axes), axes, False)


def index_of_extreme(x: Value, axis: int, largest: bool, exact: bool) -> Value:
    """Return the first index of an extreme along the axis, as si32, axis kept.

    Guard of extremes: `argmax` skips NaN, and torch returns the index of the first NaN. Two ops
    replace NaN by infinity; the first infinity counts.
    """
    keys = cai.cast(x, torch.int32) if cai.is_bool(x) else x
    if not largest:  # for integers -1 - x, as -x overflows for the least one
        keys = cai.neg(keys) if cai.is_float(x) else cai.sub(cai.like(keys, -1), keys)
    if not cai.is_float(x):
        return cai.argmax(keys, axis)
    is_nan = cai.not_equal(x, x)
    if not exact:
        return cai.argmax(cai.where(is_nan, cai.like(x, _INF), keys), axis)
    # The maximum is NaN if there is a NaN, and then equals nothing.
    is_greatest = cai.equal(keys, cai.reduce_max(keys, [axis]))
    return cai.argmax(cai.cast(cai.logical_or(is_greatest, is_nan), torch.int32), axis)


def extreme_with_index(
    ctx: Ctx, x: Value, dim: Axis, keepdim: bool, largest: bool, search: Search = index_of_extreme
) -> list[Value | None]:
    """Return the extreme along an axis, and its index by `search`."""
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    extreme = (greatest if largest else least)(x, [dim])
    index = search(x, dim, largest, ctx.exact) if ctx.uses(1) else None
    return [v if v is None else drop_axes(v, [dim], keepdim) for v in (extreme, index)]


_WITH_INDEX = [
    case(f32(2, 3, 4), 1),
    case(f32(2, 3, 4), -1, True),
    case(f32(), 0),
    case(f32(2, 6, values=_WITH_NAN), 1),
    case(f32(2, 6, values=_SPECIAL), 1, exact=True),
    case(f32(6, 2, values=_SPECIAL), 0, exact=True),
    case(f16(3, values=(_INF, _NAN, _NAN)), 0, exact=True),
    case(f16(4, values=(_INF, -_INF, _INF, -_INF)), 0),
    case(bf16(2, 3), 1),
    case(i64(2, 6), 1),
    case(i32(2, 3, values=_INT_EDGES), 1),
    case(u8(3, 4), 0),
    case(b1(3, 4), 1),
]


@lowers(aten.max.dim, cases=_WITH_INDEX)
def max_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value | None]:
    """Without `exact`, the index is that of an infinity before the first NaN."""
    return extreme_with_index(ctx, x, dim, keepdim, largest=True)


@lowers(aten.min.dim, cases=_WITH_INDEX)
def min_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value | None]:
    """Without `exact`, the index is that of minus infinity before the first NaN."""
    return extreme_with_index(ctx, x, dim, keepdim, largest=False)


def arg_extreme(
    ctx: Ctx,
    x: Value,
    dim: Axis | None,
    keepdim: bool,
    largest: bool,
    search: Search = index_of_extreme,
) -> Value:
    """Return the index of the extreme along an axis, or of all elements, by `search`."""
    if not x.type.rank:
        return cai.constant(0, torch.int32)
    if dim is not None:
        return drop_axes(search(x, dim, largest, ctx.exact), [dim], keepdim)
    flat = cai.reshape(x, [shapes.product(cai.sizes(x))])
    return cai.reshape(search(flat, 0, largest, ctx.exact), [1] * x.type.rank if keepdim else [])


_ARG_EXTREMES = [
    case(f32(2, 3, 4), 1),
    case(f32(2, 3, 4), -1, True),
    case(f32(2, 3)),
    case(f32(2, 3), None, True),
    case(f32()),
    case(f32(), 0, True),
    case(f32(2, 6, values=_WITH_NAN), 1),
    case(f32(2, 6, values=_SPECIAL), 1, exact=True),
    case(f32(2, 6, values=_SPECIAL), exact=True),
    case(f16(3, values=(_INF, _NAN, -_INF)), 0, exact=True),
    case(f32(2, 3, values=(-_INF,)), 1),
    case(i64(2, 6), 1),
    case(i32(2, 3, values=_INT_EDGES), 1),
    case(u8(3, 4)),
]


@lowers(aten.argmax.default, cases=_ARG_EXTREMES)
def argmax(ctx: Ctx, x: Value, dim: Axis | None, keepdim: bool) -> Value:
    """Without `exact`, an infinity before the first NaN counts as the maximum."""
    return arg_extreme(ctx, x, dim, keepdim, largest=True)


@lowers(aten.argmin.default, cases=_ARG_EXTREMES)
def argmin(ctx: Ctx, x: Value, dim: Axis | None, keepdim: bool) -> Value:
    """Without `exact`, minus infinity before the first NaN counts as the minimum."""
    return arg_extreme(ctx, x, dim, keepdim, largest=False)


def _reduce_bool(ctx: Ctx, reduce: Reduce, x: Value, axes: Sequence[int], keepdim: bool) -> Value:
    # For uint8 torch returns uint8.
    result = drop_axes(reduce(cai.cast(x, torch.bool), axes), axes, keepdim)
    return cai.cast(result, ctx.out_dtype)


_BOOL_OF_ALL = [
    case(b1(2, 3)),
    case(b1()),
    case(f32(3, values=(0.0, -0.0, _NAN))),
    case(i64(3, values=(0, 2**24, 0))),
    case(u8(3, values=(0, 2, 3))),
    case(b1(0), static_only="a zero-size operand"),
]
_BOOL_ALONG = [
    case(b1(3, 4), 1),
    case(b1(3, 4), -2, True),
    case(b1(), 0),
    case(f32(2, 3, values=(0.0, -0.0, _NAN)), 1),
    case(i32(3, 2, values=(0, 0, 1, 2, 0)), 1),
    case(u8(3, 2, values=(0, 0, 1, 2, 0)), 1),
]
_BOOL_ALONG_SEVERAL = [
    case(b1(2, 3, 4), [0, -1]),
    case(b1(2, 3, 4), [1], True),
    case(b1(2, 3)),
    case(b1(2, 3), []),
    case(f16(2, 3), [1]),
]


@lowers(aten.any.default, cases=_BOOL_OF_ALL)
def any_of_all(ctx: Ctx, x: Value) -> Value:
    return _reduce_bool(ctx, cai.any_, x, range(x.type.rank), False)


@lowers(aten.all.default, cases=_BOOL_OF_ALL)
def all_of_all(ctx: Ctx, x: Value) -> Value:
    return _reduce_bool(ctx, cai.all_, x, range(x.type.rank), False)


@lowers(aten.any.dim, cases=_BOOL_ALONG)
def any_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> Value:
    return _reduce_bool(ctx, cai.any_, x, [dim] if x.type.rank else [], keepdim)


@lowers(aten.all.dim, cases=_BOOL_ALONG)
def all_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> Value:
    return _reduce_bool(ctx, cai.all_, x, [dim] if x.type.rank else [], keepdim)


def _axes(x: Value, dim: Sequence[int] | None) -> list[int]:
    """Return the axes; unlike in the other reductions, an empty list means no axes."""
    return list(range(x.type.rank)) if dim is None else [d % x.type.rank for d in dim]


@lowers(aten.any.dims, cases=_BOOL_ALONG_SEVERAL)
def any_dims(ctx: Ctx, x: Value, dim: Sequence[int] | None, keepdim: bool) -> Value:
    return _reduce_bool(ctx, cai.any_, x, _axes(x, dim), keepdim)


@lowers(aten.all.dims, cases=_BOOL_ALONG_SEVERAL)
def all_dims(ctx: Ctx, x: Value, dim: Sequence[int] | None, keepdim: bool) -> Value:
    return _reduce_bool(ctx, cai.all_, x, _axes(x, dim), keepdim)
