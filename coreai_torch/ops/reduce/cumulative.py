"""Lower cumulative sums, products, extremes and log-sum-exp."""

from __future__ import annotations

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, case, lowers
from ...lowering.cases import NARROW_SCANS, b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten
from .._lib.size_bounds import upper_bound
from .complex_products import running_product
from .var_norm import log_sum_exp

_NAN, _INF = float("nan"), float("inf")
_LONGEST_RUN, _RUN = 8_192, 1_024  # of a sum, as in `reductions.py`
# Of logcumsumexp. With three levels, the pairs of blocks in the last are fewer than the elements
# up to n = 268 million; with blocks of 64 and two levels, 1,000,000 elements took 20 s and 6 GB.
_BLOCK, _DYNAMIC_LEVELS = 16, 3


def counting(extent: Dim) -> Value:
    """Return 0, 1, 2, ... as an si32 vector."""
    if isinstance(extent, int):
        return cai.tensor_constant(torch.arange(extent, dtype=torch.int32), "positions")
    return cai.range_(cai.i32(0), extent, cai.i32(1))


def positions(x: Value, axis: int) -> Value:
    """Return the index of each element along an axis, as si32; the other axes have size 1."""
    extent = cai.size(x, axis)
    dims: list[Dim] = [1] * x.type.rank
    dims[axis] = extent
    return cai.reshape(counting(extent), dims)


def _running(ctx: Ctx, x: Value, dim: Axis, combiner: str) -> Value:
    promoted = cai.cast(x, ctx.out_dtype)
    if not x.type.rank:
        return promoted
    # Guard of a crash: the runtime accumulates in the element type, and 100 + 100 in si8 ends the
    # process. A sum of ones in f16 stops at 2048 there, but not on devices.
    wide = promoted if cai.is_float(promoted) else cai.cast(promoted, torch.int32)
    if combiner == "product" and not cai.is_float(wide) and not cai.is_bool(x):
        wide = _without_overflow(wide, dim)
    return cai.cast(_scan(ctx, wide, dim, combiner), ctx.out_dtype)


def _without_overflow(x: Value, axis: int) -> Value:
    """Replace the factors with which the running product leaves 32 bits by zeros.

    Guard of a crash: 70,000 * 70,000 in a scan of si32 ends the process (SIGILL, coreai-core
    1.0.0b3); `mul` and `reduce_product` wrap. The product in float32 tells where that happens. It
    may be off by 16 roundings, so that the last 2,304 numbers of 32 bits count as too large.
    """
    sizes = cai.abs_(cai.scan(cai.cast(x, torch.float32), axis, "product"))
    return cai.where(cai.greater(sizes, cai.like(sizes, 2.0**31 - 2304)), cai.i32(0), x)


def _scan(ctx: Ctx, x: Value, axis: int, combiner: str) -> Value:
    """Return the running sum or product; a long sum of float32 runs in stages.

    Guard of the first kind: added one by one, 10**6 random numbers have an error of 2.5e-5.
    """
    bound = upper_bound(ctx.fake("self").shape[axis])
    is_short = bound is not None and bound <= _LONGEST_RUN
    is_wide = cai.is_float(x) and cai.dtype(x).itemsize > 2
    if combiner != "sum" or not is_wide or is_short or cai.may_be_empty(x):
        return cai.scan(x, axis, combiner)
    return _sum_of_runs(x, axis)


def _sum_of_runs(x: Value, axis: int) -> Value:
    """Return the running sum of floats: within runs, and added to it that of the earlier runs."""
    dims = list(cai.sizes(x))
    before, extent, after = dims[:axis], dims[axis], dims[axis + 1 :]
    run = _RUN
    if isinstance(extent, int):
        run = next((d for d in range(_RUN, _RUN // 8, -1) if extent % d == 0), _RUN)
    runs = shapes.floordiv(shapes.add(extent, run - 1), run)
    padded = shapes.mul(runs, run)
    missing = shapes.sub(padded, extent)
    if missing != 0:
        x = cai.concat(axis, [x, cai.zeros(x, [*before, missing, *after])])
    within = cai.scan(cai.reshape(x, [*before, runs, run, *after]), axis + 1, "sum")
    totals = cai.shrink_dims(cai.slice_axis(within, axis + 1, run - 1, run), [axis + 1])
    upto = _sum_of_runs if isinstance(runs, int) and runs > _LONGEST_RUN else _plain_sum
    first = cai.zeros(x, [*before, 1, *after])
    earlier = cai.concat(axis, [first, cai.slice_axis(totals, axis, 0, shapes.sub(runs, 1))])
    found = cai.add(within, cai.expand_dims(upto(earlier, axis), [axis + 1]))
    flat = cai.reshape(found, [*before, padded, *after])
    return flat if missing == 0 else cai.slice_axis(flat, axis, 0, extent)


def _plain_sum(x: Value, axis: int) -> Value:
    return cai.scan(x, axis, "sum")


_RUNNING = [
    case(f32(2, 3, 4), 1),
    case(f32(2, 3), -1),
    case(f32(), 0),
    case(f32(6, values=(1.0, _INF, 2.0, -_INF, _NAN, 1.0)), 0),
    case(bf16(2, 3), 0),
    case(i64(2, 3), 1),
    case(i32(2, 3), 0, dtype=torch.float32),
    case(u8(4), 0),
    case(b1(2, 4), 1),
    case(f32(2, 3), 1, dtype=torch.int32),
]


@lowers(
    aten.cumsum.default,
    ignore=("dtype",),  # it is in ctx.out
    cases=[
        *_RUNNING,
        case(f16(3000, values=(1.0,)), 0, by_torch=NARROW_SCANS),
        case(bf16(2, 900, values=(1.0, 0.3)), 1, by_torch=NARROW_SCANS),
        case(f32(2, 10_007, low=0, high=1, fixed=True), 1),
        case(f32(9_000, 2, low=0, high=1, fixed=True), 0),
        case(i8(300, values=(127,)), 0),
        case(i32(3, values=(100,)), 0, dtype=torch.int8),
        case(c64(2, 3), 1),
        case(c64(), 0),
    ],
)
def cumsum(ctx: Ctx, x: Value, dim: Axis) -> Value:
    if cai.is_complex(x):
        if not x.type.rank:
            return x
        parts = (part(x) for part in (cai.real_part, cai.imaginary_part))
        return cai.create_complex(*(_scan(ctx, p, dim, "sum") for p in parts))
    return _running(ctx, x, dim, "sum")


@lowers(
    aten.cumprod.default,
    ignore=("dtype",),  # it is in ctx.out
    cases=[
        *_RUNNING,
        case(f16(3, values=(0.01, 0.01, 10000.0)), 0, by_torch=NARROW_SCANS),
        case(i8(4, values=(127,)), 0, one_size="127**5 takes more than 32 bits"),
        case(c64(2, 5, fixed=True), 1),
        case(c64(7, 2, fixed=True), 0),
        case(c64(), 0),
    ],
)
def cumprod(ctx: Ctx, x: Value, dim: Axis) -> Value:
    if cai.is_complex(x):
        return running_product(ctx, x, dim) if x.type.rank else x
    return _running(ctx, x, dim, "product")


def _running_extreme(ctx: Ctx, x: Value, dim: Axis, combiner: str) -> list[Value | None]:
    """Return the running extreme and its last index; NaN propagates to all later elements."""
    if not x.type.rank:
        return [x, cai.constant(0, torch.int32)]
    ordered = cai.cast(x, torch.int32) if cai.is_bool(x) else x
    extreme = cai.scan(ordered, dim, combiner)
    at_extreme = cai.equal(ordered, extreme)
    if cai.is_float(x):  # guard of NaN that passes through: the scan ignores it
        is_nan = cai.not_equal(x, x)
        seen = cai.scan(cai.raw_cast(is_nan, torch.int32), dim, "max")
        after_nan = cai.cast(seen, torch.bool)
        extreme = cai.where(after_nan, cai.like(x, _NAN), extreme)
        fresh = cai.logical_and(at_extreme, cai.logical_not(after_nan))
        at_extreme = cai.logical_or(fresh, is_nan)
    values = cai.cast(extreme, cai.dtype(x))
    if not ctx.uses(1):
        return [values, None]
    placed = cai.where(at_extreme, positions(x, dim), cai.i32(0))
    return [values, cai.scan(placed, dim, "max")]


_RUNNING_EXTREMES = [
    case(f32(2, 3, 4), 1),
    case(f32(2, 5), -1),
    case(f32(), 0),
    case(f32(8, values=(1.0, 3.0, 3.0, _NAN, 2.0, _NAN, _INF, -_INF)), 0),
    case(f32(2, 4, values=(_NAN, 1.0, _INF, -_INF, -_INF, -_INF, _INF, _INF)), 1),
    case(f16(2, 4, values=(1.0, 2.0, 2.0, 1.0)), 1),
    case(bf16(6), 0),
    case(i64(12), 0),
    case(i32(4, values=(-(2**31), 2**31 - 1, 2**31 - 1, 0)), 0),
    case(u8(3, 4), 1),
    case(b1(3, 4), 1),
]


@lowers(aten.cummax.default, cases=_RUNNING_EXTREMES)
def cummax(ctx: Ctx, x: Value, dim: Axis) -> list[Value | None]:
    return _running_extreme(ctx, x, dim, "max")


@lowers(aten.cummin.default, cases=_RUNNING_EXTREMES)
def cummin(ctx: Ctx, x: Value, dim: Axis) -> list[Value | None]:
    return _running_extreme(ctx, x, dim, "min")


@lowers(
    aten.logcumsumexp.default,
    cases=[
        case(f32(2, 3, 4), 1),
        case(f32(2, 5), -1),
        case(f32(), 0),
        case(f32(5, values=(-300.0, -200.0, 0.0, 200.0, 100.0)), 0),
        case(f16(6, values=(50.0, -50.0, 50.0, 49.0, -50.0, 50.0)), 0),
        case(f32(3, 3, values=(-_INF, -_INF, 1.0, 1.0, _INF, 1.0, 1.0, _NAN, 1.0)), 1),
        case(bf16(2, 3), 0),
        case(f32(2, 2, 300, low=-40.0, high=40.0), 2),
        case(f32(45, 2, values=(-_INF, 1.0, _INF, 2.0, 0.0, -_INF, 3.0)), 0),
        case(f32(100, 2, values=(-_INF, -1.0, 2.0, -_INF, -_INF)), 0),
        case(f32(50, values=(-300.0, -200.0, 0.0, 200.0, 100.0)), 0),
        case(f32(2, 0), 1, static_only="an empty operand"),
    ],
)
def logcumsumexp(ctx: Ctx, x: Value, dim: Axis) -> Value:
    if not x.type.rank:
        return x
    dims, rank = cai.sizes(x), x.type.rank
    order = [*(a for a in range(rank) if a != dim), dim]
    rows = cai.transpose(cai.cast(x, torch.float32), order)
    found = _log_sums(cai.reshape(rows, [shapes.product([dims[a] for a in order[:-1]]), dims[dim]]))
    found = cai.reshape(found, [dims[a] for a in order])
    return cai.cast(cai.transpose(found, [order.index(a) for a in range(rank)]), ctx.out_dtype)


def _log_sums(x: Value, level: int = 1) -> Value:
    """Return the running log-sum-exp of each row: per block, then over the block totals.

    A block of 16 elements uses a table of all pairs, so n elements take 16 n exponentials instead
    of n². With a dynamic size, the last level is a table of all pairs of blocks.
    """
    rows, count = cai.sizes(x)
    if isinstance(count, int) and count <= 2 * _BLOCK:
        return _log_sums_of_pairs(x)
    blocks = shapes.floordiv(shapes.add(count, _BLOCK - 1), _BLOCK)
    blocks = shapes.maximum(blocks, 1)  # a reshape to no blocks fails: `x[x > 9].logcumsumexp(0)`
    filler = shapes.sub(shapes.mul(blocks, _BLOCK), count)
    if not (isinstance(filler, int) and filler == 0):
        none = cai.broadcast_to(cai.like(x, -_INF), [rows, filler])
        x = cai.concat(1, [x, none])
    cells = cai.reshape(x, [rows, blocks, _BLOCK])
    within = _log_sums_of_pairs(cells)
    totals = cai.reshape(cai.slice_axis(within, 2, _BLOCK - 1, _BLOCK), [rows, blocks])
    is_last = not isinstance(count, int) and level == _DYNAMIC_LEVELS
    upto = _log_sums_of_pairs(totals) if is_last else _log_sums(totals, level + 1)
    first = cai.broadcast_to(cai.like(x, -_INF), [rows, 1])
    before = cai.concat(1, [first, cai.slice_axis(upto, 1, 0, shapes.sub(blocks, 1))])
    found = _log_add(within, cai.reshape(before, [rows, blocks, 1]))
    return cai.slice_axis(cai.reshape(found, [rows, shapes.mul(blocks, _BLOCK)]), 1, 0, count)


def _log_sums_of_pairs(x: Value) -> Value:
    """Return the running log-sum-exp of the last axis; each result has a separate shift.

    A common shift loses elements 100 below the maximum: for [-200, 0] the first result must be
    -200.
    """
    axis = x.type.rank - 1
    terms = cai.expand_dims(x, [axis])
    masked = cai.where(_is_later(cai.size(x, axis)), cai.like(terms, -_INF), terms)
    return cai.shrink_dims(log_sum_exp(masked, [axis + 1]), [axis + 1])


def _is_later(count: Dim) -> Value:
    """Return whether each column comes after the row."""
    if isinstance(count, int):
        square = torch.ones(count, count, dtype=torch.bool)
        return cai.tensor_constant(square.triu(1), "later positions")
    rows = cai.reshape(counting(count), [count, 1])
    return cai.greater(cai.reshape(counting(count), [1, count]), rows)


def _log_add(x: Value, y: Value) -> Value:
    """Return `log(exp(x) + exp(y))`; do not subtract an infinite maximum: inf - inf is NaN."""
    peak = cai.maximum(x, y)
    infinite = cai.equal(cai.abs_(peak), cai.like(peak, _INF))
    shift = cai.where(infinite, cai.like(peak, 0.0), peak)
    terms = (cai.exp(cai.sub(t, shift)) for t in (x, y))
    return cai.add(cai.log(cai.add(*terms)), shift)
