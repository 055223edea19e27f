"""Lower `sort`, `topk`, `kthvalue`, `median` and `mode`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, case, lowers
from ...lowering.cases import b1, bf16, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .cumulative import positions
from .reductions import drop_axes, extreme_with_index

_NAN, _INF = float("nan"), float("inf")
_SPECIAL = (1.0, _NAN, 3.0, -_INF, 3.0, _NAN, _INF, -0.0, 2.0, 2.0)
_TIES = (1, 2, 2, 1, 3, 3, 3, 0)


def order(x: Value, axis: int, descending: bool = False) -> Value:
    """Return the stable permutation that sorts an axis, as si32; NaN is greatest."""
    keys = cai.cast(x, torch.int32) if cai.is_bool(x) else x
    if not (descending and cai.is_float(x)):
        return cai.argsort(keys, axis, descending)
    # Guard of NaN: the dialect's descending sort puts it last. Sort the reversed axis ascending and
    # reverse the result: NaN is first, and equal elements keep their order.
    backwards = cai.argsort(cai.reverse(keys, [axis]), axis, False)
    last = shapes.sub(cai.size(x, axis), 1)
    return cai.sub(cai.i32(last) if isinstance(last, int) else last, cai.reverse(backwards, [axis]))


def _sorted(x: Value, axis: int, descending: bool) -> Value:
    """Return only the sorted values, without a gather."""
    keys = cai.cast(x, torch.int32) if cai.is_bool(x) else x
    if descending and cai.is_float(x):
        ordered = cai.reverse(cai.sort(keys, axis, False), [axis])
    else:
        ordered = cai.sort(keys, axis, descending)
    return cai.cast(ordered, cai.dtype(x))


_SORTS = [
    case(f32(2, 5)),
    case(f32(3, 4), 0),
    case(f32(3, 4), -2, True),
    case(f32()),
    case(f32(2, 10, values=_SPECIAL)),
    case(f32(2, 10, values=_SPECIAL), -1, True),
    case(f16(10, values=_SPECIAL), 0, True),
    case(bf16(6)),
    case(i64(2, 8, values=_TIES)),
    case(i64(2, 8, values=_TIES), 1, True),
    case(i32(3, values=(2**31 - 1, -(2**31), 0)), 0, True),
    case(u8(8, values=_TIES), 0, True),
    case(b1(8)),
    case(b1(8), 0, True),
]


def _sort(ctx: Ctx, x: Value, dim: Axis, descending: bool) -> list[Value | None]:
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    if not ctx.uses(1):
        return [_sorted(x, dim, descending), None]
    places = order(x, dim, descending)
    return [cai.gather_along_axis(x, places, dim) if ctx.uses(0) else None, places]


@lowers(aten.sort.default, cases=_SORTS)
def sort(ctx: Ctx, x: Value, dim: Axis, descending: bool) -> list[Value | None]:
    return _sort(ctx, x, dim, descending)


@lowers(
    aten.sort.stable,
    ignore=("stable",),  # the order is always stable
    cases=[
        case(f32(2, 10, values=_SPECIAL), stable=True, dim=0),
        case(f32(2, 10, values=_SPECIAL), stable=False, descending=True),
        case(i8(8, values=_TIES), stable=True, descending=True),
        case(i64(8, values=_TIES), stable=None),
    ],
)
def sort_stable(ctx: Ctx, x: Value, dim: Axis, descending: bool) -> list[Value | None]:
    return _sort(ctx, x, dim, descending)


_ANY = "of equal numbers torch may take any"


@lowers(
    aten.topk.default,
    ignore=("sorted",),  # sorted=False allows any order, including the sorted one
    cases=[
        case(f32(2, 5), 3),
        case(f32(5, 3), 2, 0, False),
        case(f32(2, 5), 1, -1, True, False),
        case(f32(), 1),
        case(f32(8, values=(1.0, _NAN, 3.0, -_INF, -3.0, _INF, -0.0, 2.0)), 3, one_size=_ANY),
        case(f32(2, 3, values=(_INF, 5.0, 1.0, -_INF, -_INF, -_INF)), 1, one_size=_ANY),
        case(f32(2, 3, values=(_INF, _NAN, 1.0, 2.0, 3.0, _NAN)), 1, one_size=_ANY, exact=True),
        case(
            f32(10, values=(5.0, _NAN, 3.0, -_INF, 1.0, _NAN, _INF, 0.0, 7.0, 2.0)),
            8,
            0,
            False,
            one_size=_ANY,
        ),
        case(f16(2, 5), 2),
        case(bf16(1, 3, values=(1.0, 3.0, 2.0)), 2, one_size=_ANY),
        case(i64(2, 4, values=(4, 7, -2, 1)), 3, one_size=_ANY),
        case(i32(3, values=(2**31 - 1, -(2**31), 0)), 2, 0, False, one_size=_ANY),
        case(u8(4, values=(200, 7, 255, 1)), 1),
    ],
)
def topk(ctx: Ctx, x: Value, k: Dim, dim: Axis, largest: bool) -> list[Value | None]:
    """Equal elements are in any order, as in torch.

    Without `exact`, the index for k=1 is that of an infinity before the first NaN.
    """
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    if isinstance(k, int) and k == 1 and largest:
        return extreme_with_index(ctx, x, dim, True, largest)
    if not (largest and cai.is_float(x)):
        return selected(ctx, x, dim, largest, lambda v: cai.slice_axis(v, dim, 0, k))
    extent = cai.size(x, dim)
    first = shapes.sub(extent, k)

    def last_reversed(v: Value) -> Value:  # a descending sort would put NaN last
        return cai.reverse(cai.slice_axis(v, dim, first, extent), [dim])

    return selected(ctx, x, dim, False, last_reversed)


def selected(
    ctx: Ctx, x: Value, axis: int, descending: bool, select: Callable[[Value], Value]
) -> list[Value | None]:
    """Return elements that `select` takes from the sorted axis, and their places."""
    if not ctx.uses(1):
        return [select(cai.sort(x, axis, descending)), None]
    places = select(cai.argsort(x, axis, descending))
    return [cai.gather_along_axis(x, places, axis) if ctx.uses(0) else None, places]


@lowers(
    aten.kthvalue.default,
    cases=[
        case(f32(2, 5), 2),
        case(f32(5, 2), 4, 0, True),
        case(f32(), 1),
        case(f32(5, values=(1.0, _NAN, -_INF, 3.0, 2.0)), 5),
        case(f16(2, 5), 1),
        case(i64(5, values=(5, 1, 4, 2, 3)), 3),
    ],
)
def kthvalue(ctx: Ctx, x: Value, k: Dim, dim: Axis, keepdim: bool) -> list[Value | None]:
    """Of equal elements, the index is that of any one, as in torch."""
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    before = shapes.sub(k, 1)
    found = selected(ctx, x, dim, False, lambda v: cai.slice_axis(v, dim, before, k))
    return [None if v is None else drop_axes(v, [dim], keepdim) for v in found]


def _at_middle(ordered: Value, x: Value, axis: int, ignore_nan: bool) -> Value:
    """Return the entry of the sorted axis for the lower median of `x`, keepdim.

    It is the entry of the first NaN if there is one that is not ignored.
    """
    extent = cai.size(x, axis)
    half = shapes.floordiv(shapes.sub(extent, 1), 2)
    if not cai.is_float(x):
        return cai.slice_axis(ordered, axis, half, shapes.add(half, 1))
    is_nan = cai.raw_cast(cai.not_equal(x, x), torch.int32)
    numbers = cai.sub(shapes.number(extent), cai.reduce_sum(is_nan, [axis]))
    if ignore_nan:
        middle = cai.floor_divide(cai.sub(numbers, cai.i32(1)), cai.i32(2))
        place = cai.maximum(middle, cai.i32(0))
    else:
        has_nan = cai.less(numbers, shapes.number(extent))
        place = cai.where(has_nan, numbers, shapes.number(half))
    return cai.gather_along_axis(ordered, place, axis)


_MEDIANS = [
    case(f32(2, 5), 1),
    case(f32(4, 3), -2, True),
    case(f32(), 0),
    case(f32(3, 4, values=(1.0, _NAN, 2.0, _NAN, 4.0, _INF, 2.0, -_INF, 4.0, 1.0, _NAN, 9.0)), 1),
    case(f16(2, 5), 1),
    case(i64(2, 4, values=(4, 1, 3, 2)), 1),
]
_MEDIANS_OF_ALL = [
    case(f32(2, 3)),
    case(f32()),
    case(f32(5, values=(1.0, _NAN, 2.0, 3.0, 4.0))),
    case(f32(3, values=(_NAN,))),
    case(bf16(7)),
    case(i64(2, 4)),
    case(u8(5, values=(200, 255, 1, 7, 8))),
]


def _median_along(
    ctx: Ctx, x: Value, dim: Axis, keepdim: bool, ignore_nan: bool
) -> list[Value | None]:
    """Return the lower median and its index, which is that of a stable sort as in torch."""
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    if not ctx.uses(1):
        median = _at_middle(cai.sort(x, dim, False), x, dim, ignore_nan)
        return [drop_axes(median, [dim], keepdim), None]
    place = _at_middle(cai.argsort(x, dim, False), x, dim, ignore_nan)
    return [drop_axes(v, [dim], keepdim) for v in (cai.gather_along_axis(x, place, dim), place)]


def _median_of_all(x: Value, ignore_nan: bool) -> Value:
    if not x.type.rank:
        return x
    flat = cai.reshape(x, [shapes.product(cai.sizes(x))])
    return drop_axes(_at_middle(cai.sort(flat, 0, False), flat, 0, ignore_nan), [0], False)


@lowers(aten.median.dim, cases=_MEDIANS)
def median_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value | None]:
    return _median_along(ctx, x, dim, keepdim, ignore_nan=False)


@lowers(aten.nanmedian.dim, cases=_MEDIANS)
def nanmedian_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value | None]:
    return _median_along(ctx, x, dim, keepdim, ignore_nan=True)


@lowers(aten.median.default, cases=_MEDIANS_OF_ALL)
def median(ctx: Ctx, x: Value) -> Value:
    return _median_of_all(x, ignore_nan=False)


@lowers(aten.nanmedian.default, cases=_MEDIANS_OF_ALL)
def nanmedian(ctx: Ctx, x: Value) -> Value:
    return _median_of_all(x, ignore_nan=True)


def shifted(x: Value, axis: int) -> Value:
    """Return each element's predecessor along an axis; zero before the first."""
    dims = [1 if a == axis else size for a, size in enumerate(cai.sizes(x))]
    longer = cai.concat(axis, [cai.zeros(x, dims), x])
    return cai.slice_axis(longer, axis, 0, cai.size(x, axis))


@lowers(
    aten.mode.default,
    cases=[
        case(i64(2, 8, values=_TIES)),
        case(i64(8, 2, values=_TIES), 0, True),
        case(f32(2, 3, values=(2.0, 1.0, 2.0, 3.0, 1.0, 2.0))),
        case(f32()),
        case(f32(3, values=(_NAN, 1.0, 1.0))),
        case(f16(5, values=(-1.0, 0.0, -1.0, 0.0, 5.0))),
        case(u8(4, values=(255, 255, 0, 0))),
        case(b1(7)),
    ],
)
def mode(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value]:
    """Return the smallest of the most frequent values and its last index."""
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    places = order(x, dim)
    ordered = cai.gather_along_axis(x, places, dim)
    place = positions(x, dim)
    fresh = cai.not_equal(ordered, shifted(ordered, dim))
    started = cai.scan(cai.where(fresh, place, cai.i32(0)), dim, "max")
    longest_run_end = cai.argmax(cai.sub(place, started), dim)
    found = cai.gather_along_axis(places, longest_run_end, dim)
    return [drop_axes(v, [dim], keepdim) for v in (cai.gather_along_axis(x, found, dim), found)]
