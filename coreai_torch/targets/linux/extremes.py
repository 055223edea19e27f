"""Extremes of long axes, searched block by block: 1 ns an element, 24 by argmax, 2,300 by a sort.

An axis is split into blocks. Their extremes are found first, then those inside the best blocks.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, lowers
from ...ops.reduce.reductions import (
    arg_extreme,
    extreme_with_index,
    greatest,
    index_of_extreme,
    least,
)
from ...ops.reduce.sort_topk import order
from ...ops.reduce.sort_topk import topk as plain_topk
from ...torch_compat import aten

_MANY = 4096  # elements from which blocks are faster
_tuned = partial(lowers, target="linux")
_INDEX = "64 rows of 32,000 take 50 ms with argmax, 2 in blocks"


def _divisor(extent: int) -> int:
    """Return the number of elements of a block that divides the axis, or 0 if none is fast."""
    divisors = [d for d in range(2, math.isqrt(extent) + 1) if extent % d == 0]
    best = min((d + extent // d, d) for d in divisors) if divisors else (extent, 0)
    return best[1] if best[0] <= extent // 2 else 0


def _index(x: Value, axis: int, largest: bool, exact: bool) -> Value:
    """Return the first index of an extreme along the axis, as si32, axis kept."""
    is_long = abs(math.prod(x.type.shape)) >= _MANY and not cai.may_be_empty(x)
    size = _divisor(x.type.shape[axis]) if is_long and not x.type.is_dynamic_dim(axis) else 0
    if not size:
        return index_of_extreme(x, axis, largest, exact)
    dims = list(cai.sizes(x))
    cells = cai.reshape(x, [*dims[:axis], x.type.shape[axis] // size, size, *dims[axis + 1 :]])
    of_blocks = (greatest if largest else least)(cells, [axis + 1])
    block = index_of_extreme(cai.shrink_dims(of_blocks, [axis + 1]), axis, largest, exact)
    place = [*dims[:axis], 1, size, *dims[axis + 1 :]]
    at = cai.broadcast_to(cai.expand_dims(block, [axis + 1]), place)
    chosen = cai.shrink_dims(cai.gather_along_axis(cells, at, axis), [axis])
    within = index_of_extreme(chosen, axis, largest, exact)
    return cai.add(cai.mul(block, cai.i32(size)), within)


@_tuned(aten.argmax.default, reason=_INDEX)
def argmax(ctx: Ctx, x: Value, dim: Axis | None, keepdim: bool) -> Value:
    return arg_extreme(ctx, x, dim, keepdim, True, _index)


@_tuned(aten.argmin.default, reason=_INDEX)
def argmin(ctx: Ctx, x: Value, dim: Axis | None, keepdim: bool) -> Value:
    return arg_extreme(ctx, x, dim, keepdim, False, _index)


@_tuned(aten.max.dim, reason=_INDEX)
def max_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value | None]:
    return extreme_with_index(ctx, x, dim, keepdim, True, _index)


@_tuned(aten.min.dim, reason=_INDEX)
def min_dim(ctx: Ctx, x: Value, dim: Axis, keepdim: bool) -> list[Value | None]:
    return extreme_with_index(ctx, x, dim, keepdim, False, _index)


@_tuned(aten.topk.default, ignore=("sorted",), reason="50 of 32,000 take 72 ms with a sort, 4 so")
def topk(ctx: Ctx, x: Value, k: Dim, dim: Axis, largest: bool) -> list[Value | None]:
    if x.type.rank and largest and isinstance(k, int) and not x.type.is_dynamic_dim(dim):
        if k == 1:
            return extreme_with_index(ctx, x, dim, True, largest, _index)
        extent, elements = int(x.type.shape[dim]), abs(math.prod(x.type.shape))
        block = math.isqrt(extent // max(k, 1))
        if block >= 4 and elements >= _MANY and not cai.may_be_empty(x):
            return _top_of_blocks(x, k, dim, block)
    found: list[Value | None] = plain_topk(ctx, x, k, dim, largest)
    return found


def _top_of_blocks(x: Value, k: int, dim: int, block: int) -> list[Value | None]:
    """Sort the greatest elements of blocks, then the elements of the best `k` blocks.

    The elements after the last full block are sorted with the latter.
    """
    sizes = list(cai.sizes(x))
    extent, others = int(x.type.shape[dim]), [a for a in range(x.type.rank) if a != dim]
    count = shapes.product([sizes[a] for a in others])
    rows = cai.reshape(cai.transpose(x, [*others, dim]), [count, extent])
    blocks = extent // block
    cells = cai.reshape(cai.slice_axis(rows, 1, 0, blocks * block), [count, blocks, block])
    of_blocks = cai.shrink_dims(cai.reduce_max(cells, [2]), [2])
    first = cai.mul(cai.slice_axis(order(of_blocks, 1, True), 1, 0, k), cai.i32(block))
    within = cai.tensor_constant(torch.arange(block, dtype=torch.int32), "positions")
    places = cai.reshape(cai.add(cai.expand_dims(first, [2]), within), [count, k * block])
    if rest := extent % block:
        tail = torch.arange(extent - rest, extent, dtype=torch.int32)[None]
        beyond = cai.broadcast_to(cai.tensor_constant(tail, "positions"), [count, rest])
        places = cai.concat(1, [places, beyond])
    chosen = cai.slice_axis(order(cai.gather_along_axis(rows, places, 1), 1, True), 1, 0, k)
    found = cai.gather_along_axis(places, chosen, 1)
    back = [[*others, dim].index(a) for a in range(x.type.rank)]
    dims = [*(sizes[a] for a in others), k]
    results = (cai.gather_along_axis(rows, found, 1), found)
    return [cai.transpose(cai.reshape(v, dims), back) for v in results]
