"""Lower `sort`, `topk`, `kthvalue`, `median` and `mode`."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, case, lowers
from ...lowering.cases import b1, bf16, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .cumulative import positions
from .reductions import drop_axes, extreme_and_index, greatest
from .selection import block_size, element_at, fill_last_block, greatest_blocks, is_long

_NAN, _INF = float("nan"), float("inf")
_SPECIAL = (1.0, _NAN, 3.0, -_INF, 3.0, _NAN, _INF, -0.0, 2.0, 2.0)
_TIES = (1, 2, 2, 1, 3, 3, 3, 0)


def order(x: Value, axis: int, descending: bool = False) -> Value:
    """Return the stable permutation that sorts an axis, as si32; NaN is greatest."""
    keys = cai.cast(x, torch.int32) if cai.is_bool(x) else x
    if not (descending and cai.is_float(x)):
        return cai.argsort(keys, axis, descending)
    # The dialect's descending sort puts NaN last. Sort the reversed axis in ascending order and
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
        case(f32(10, values=_SPECIAL), 3),
        case(f32(2, 3, values=(_INF, _NAN, 1.0, -_INF, -_INF, -_INF)), 1, one_size=_ANY),
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
def topk(ctx: Ctx, x: Value, k: Dim, dim: Axis, largest: bool) -> list[Value]:
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    if isinstance(k, int) and k == 1 and largest:
        return [*extreme_and_index(greatest, x, dim)]
    elements = abs(math.prod(x.type.shape))  # a dynamic size makes it large
    block = block_size(x.type.shape[dim], k, elements) if isinstance(k, int) else 0
    if block and not cai.may_be_empty(x):
        return _top_of_blocks(x, int(k), dim, largest, block)
    places = cai.slice_axis(order(x, dim, largest), dim, 0, k)
    return [cai.gather_along_axis(x, places, dim), places]


def _top_of_blocks(x: Value, k: int, dim: int, largest: bool, block: int) -> list[Value]:
    """Sort the extremes of blocks, then the elements of the best `k` blocks.

    Ties are resolved in favour of the first element, as in a stable sort: the blocks keep their
    order, and the elements after the last full block come last.
    """
    rank, sizes = x.type.rank, list(cai.sizes(x))
    last = [*(a for a in range(rank) if a != dim), dim]
    back = [last.index(a) for a in range(rank)]
    count = shapes.product([sizes[a] for a in last[:-1]])
    rows = cai.reshape(cai.transpose(x, last), [count, sizes[dim]])
    if not isinstance(sizes[dim], int):
        rows = fill_last_block(rows, block, largest)
    best = cai.slice_axis(order(greatest_blocks(rows, block, largest), 1, largest), 1, 0, k)
    first = cai.mul(cai.sort(best, 1, False), cai.i32(block))
    within = cai.tensor_constant(torch.arange(block, dtype=torch.int32), "positions")
    chosen_blocks = shapes.mul(cai.size(first, 1), block)
    places = cai.reshape(cai.add(cai.expand_dims(first, [2]), within), [count, chosen_blocks])
    rest = sizes[dim] % block if isinstance(sizes[dim], int) else 0
    if rest:
        tail = torch.arange(sizes[dim] - rest, sizes[dim], dtype=torch.int32)[None]
        beyond = cai.broadcast_to(cai.tensor_constant(tail, "positions"), [count, rest])
        places = cai.concat(1, [places, beyond])
    chosen = cai.slice_axis(order(cai.gather_along_axis(rows, places, 1), 1, largest), 1, 0, k)
    found = cai.gather_along_axis(places, chosen, 1)
    values = cai.gather_along_axis(rows, found, 1)
    dims = [*(sizes[a] for a in last[:-1]), k]
    return [cai.transpose(cai.reshape(v, dims), back) for v in (values, found)]


def _flat(x: Value) -> Value:
    return cai.reshape(x, [shapes.product(cai.sizes(x))])


def _at(x: Value, rank: Value, axis: int, size: Any, stable: bool) -> tuple[Value, Value]:
    """Return value and index of the element of each rank; the axis has its size in `rank`."""
    if is_long(x, axis, size):
        return element_at(x, rank, axis, stable)
    place = cai.gather_along_axis(order(x, axis), rank, axis)
    return cai.gather_along_axis(x, place, axis), place


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
def kthvalue(ctx: Ctx, x: Value, k: Dim, dim: Axis, keepdim: bool) -> list[Value]:
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    if is_long(x, dim, ctx.fake("self").shape[dim]):
        kept = [1 if a == dim else size for a, size in enumerate(cai.sizes(x))]
        rank = cai.broadcast_to(shapes.number(shapes.sub(k, 1)), kept)
        pair = element_at(x, rank, dim, stable=False)  # torch's index may be any
    else:
        place = cai.slice_axis(order(x, dim), dim, shapes.sub(k, 1), k)
        pair = cai.gather_along_axis(x, place, dim), place
    return [drop_axes(v, [dim], keepdim) for v in pair]


def _whole(number: Dim) -> Value:
    return cai.i32(number) if isinstance(number, int) else number


def _median(
    x: Value, axis: int, size: Any, ignore_nan: bool, with_index: bool
) -> tuple[Value, Value]:
    """Return the lower median and its index (keepdim); the first NaN unless NaN is ignored.

    `size` is the size of the axis in the exported graph. Torch's index is that of a stable sort.
    """
    extent = cai.size(x, axis)
    is_nan = cai.raw_cast(cai.not_equal(x, x), torch.int32)
    numbers = cai.sub(_whole(extent), cai.reduce_sum(is_nan, [axis]))
    if ignore_nan:
        middle = cai.floor_divide(cai.sub(numbers, cai.i32(1)), cai.i32(2))
        return _at(x, cai.maximum(middle, cai.i32(0)), axis, size, with_index)
    half = _whole(shapes.floordiv(shapes.sub(extent, 1), 2))
    has_nan = cai.less(numbers, _whole(extent))
    return _at(x, cai.where(has_nan, numbers, half), axis, size, with_index)


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


def _median_along(ctx: Ctx, x: Value, dim: Axis, keepdim: bool, ignore_nan: bool) -> list[Value]:
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    pair = _median(x, dim, ctx.fake("self").shape[dim], ignore_nan, ctx.uses(1))
    return [drop_axes(v, [dim], keepdim) for v in pair]


def _median_of_all(ctx: Ctx, x: Value, ignore_nan: bool) -> Value:
    if not x.type.rank:
        return x
    size = ctx.fake("self").numel()
    return drop_axes(_median(_flat(x), 0, size, ignore_nan, False)[0], [0], False)


@lowers(aten.median.dim, cases=_MEDIANS)
def median_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value]:
    return _median_along(ctx, x, dim, keepdim, ignore_nan=False)


@lowers(aten.nanmedian.dim, cases=_MEDIANS)
def nanmedian_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value]:
    return _median_along(ctx, x, dim, keepdim, ignore_nan=True)


@lowers(aten.median.default, cases=_MEDIANS_OF_ALL)
def median(ctx: Ctx, x: Value) -> Value:
    return _median_of_all(ctx, x, ignore_nan=False)


@lowers(aten.nanmedian.default, cases=_MEDIANS_OF_ALL)
def nanmedian(ctx: Ctx, x: Value) -> Value:
    return _median_of_all(ctx, x, ignore_nan=True)


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
