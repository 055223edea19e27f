"""Select the k-th smallest or the k greatest elements of a long axis without a full sort.

The runtime (coreai-core 1.0.0b3) sorts at 2.6 µs per element, and compares and counts at 9 ns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes
from ...ir.dialect import Value
from .._lib.size_bounds import upper_bound
from .cumulative import positions

_LONG, _MANY = 64, 4096  # sorting a shorter axis or fewer elements is faster
_INF = float("inf")
_TOP_BIT = 1 << 30
_MANTISSA = 1 << 23
_MOST_EXACT = 1 << 24  # float32 has all integers up to here


def is_long(x: Value, axis: int, size: Any) -> bool:
    """Return whether an axis is long enough for selection, or may be if its size is dynamic.

    `size` is the size of the axis in the exported graph.
    """
    if cai.may_be_empty(x):
        return False
    if not x.type.is_dynamic_dim(axis):
        extent, elements = int(x.type.shape[axis]), abs(math.prod(x.type.shape))
        return extent >= _LONG and elements >= _MANY
    bound = upper_bound(size)
    return bound is None or bound >= _MANY


def _last_place(x: Value, axis: int) -> Value:
    return shapes.number(shapes.sub(cai.size(x, axis), 1))


def _searched(x: Value) -> Value:
    """Return the elements as f32 or si32, in the same order."""
    return cai.cast(x, torch.float32 if cai.is_float(x) else torch.int32)


def _float_of(bits: Value) -> Value:
    """Return the f32 with the bits of a non-negative si32."""
    exponent = cai.floor_divide(bits, cai.i32(_MANTISSA))
    fraction = cai.sub(bits, cai.mul(exponent, cai.i32(_MANTISSA)))
    leading = cai.mul(cai.minimum(exponent, cai.i32(1)), cai.i32(_MANTISSA))
    powers = [math.ldexp(1.0, max(e, 1) - 150) for e in range(255)] + [_INF]
    table = cai.tensor_constant(torch.tensor(powers, dtype=torch.float32), "powers")
    scale = cai.gather_nd(table, cai.expand_dims(exponent, [bits.type.rank]))
    return cai.mul(cai.raw_cast(cai.add(fraction, leading), torch.float32), scale)


def _smallest_with(x: Value, rank: Value, axis: int) -> Value:
    """Return the smallest number that is >= more than `rank` elements (radix select).

    The bits of a float without its sign are ordered like its magnitude. Each of 31 passes over
    `x` determines one bit of each result.
    """
    zero = cai.like(x, 0)
    negative = cai.greater(_count(cai.less(x, zero), axis), rank)
    floats = cai.is_float(x)
    most_later = cai.sub(_last_place(x, axis), rank)

    def number(bits: Value) -> Value:
        if not floats:
            return cai.add(bits, cai.where(negative, cai.i32(-(2**31)), cai.i32(0)))
        magnitude = _float_of(bits)
        return cai.where(negative, cai.neg(magnitude), magnitude)

    def step(carried: Sequence[Value]) -> list[Value]:
        bit, bits = carried
        wanted = cai.add(bits, bit)
        ahead = cai.sub(wanted, cai.i32(1))
        tried = cai.where(negative, wanted, ahead) if floats else ahead
        keeps = cai.greater(_count(cai.greater(x, number(tried)), axis), most_later)
        if floats:  # a greater magnitude is a smaller number
            keeps = cai.logical_xor(keeps, negative)
        return [cai.floor_divide(bit, cai.i32(2)), cai.where(keeps, wanted, bits)]

    start = cai.broadcast_to(cai.i32(0), cai.sizes(negative))
    going_on = lambda carried: cai.greater(carried[0], cai.i32(0))  # noqa: E731
    _, bits = graph.loop([cai.constant(_TOP_BIT, torch.int32), start], going_on, step)
    return number(bits)


def element_at(x: Value, rank: Value, axis: int, stable: bool) -> tuple[Value, Value]:
    """Return value and index of the element of a rank (from 0), keepdim; NaN is last.

    `rank` is an si32 tensor with the sizes of the result. The index is that of a stable sort, or
    else of the first element with this value, which is faster.
    """
    keys = _searched(x)
    is_nan = cai.not_equal(keys, keys)
    numbers = cai.where(is_nan, cai.like(keys, _INF), keys) if cai.is_float(x) else keys
    least = _smallest_with(numbers, rank, axis)
    place, far, last = positions(x, axis), cai.i32(2**31 - 1), _last_place(x, axis)
    wanted, earlier = cai.equal(keys, least), cai.less(keys, least)
    if cai.is_float(x):
        reached = cai.logical_not(cai.less(numbers, least))
        nearest = cai.reduce_min(cai.where(reached, numbers, cai.like(keys, _INF)), [axis])
        among_nans = cai.greater(cai.add(rank, _count(is_nan, axis)), last)
        wanted = cai.where(among_nans, is_nan, cai.equal(keys, nearest))
        earlier = cai.where(among_nans, cai.logical_not(is_nan), cai.less(keys, nearest))
    if stable:
        seen = cai.scan(cai.raw_cast(wanted, torch.int32), axis, "sum")
        wanted = cai.greater(seen, cai.sub(rank, _count(earlier, axis)))
    found = cai.reduce_min(cai.where(wanted, place, far), [axis])
    found = cai.minimum(found, last)
    return cai.gather_along_axis(x, found, axis), found


def _count(is_counted: Value, axis: int) -> Value:
    """Return how many elements are true; in float32 a sum takes a quarter of the time."""
    is_exact = 0 <= is_counted.type.shape[axis] <= _MOST_EXACT
    kind = torch.float32 if is_exact else torch.int32
    return cai.raw_cast(cai.reduce_sum(cai.raw_cast(is_counted, kind), [axis]), torch.int32)


def block_size(extent: int, k: int, elements: int) -> int:
    """Return the number of elements in a block, or 0 if a full sort of all elements is as fast.

    The extremes of all blocks and the elements of `k` blocks are sorted. The size makes both
    counts about equal; for a dynamic extent, which is negative, it does so at 4,096 k elements, or
    at 256 k for a greater `k`.
    """
    if extent < 0:
        return 64 if k <= 64 else 16 if k <= 1024 else 0
    block = math.isqrt(extent // max(k, 1))
    return block if extent >= 64 and elements >= _MANY and block >= 4 else 0


def fill_last_block(x: Value, block: int, largest: bool) -> Value:
    """Append columns that are selected last, so that the number of columns is divisible."""
    extent = cai.size(x, 1)
    full = shapes.add(shapes.floordiv(extent, block), 1)
    missing = shapes.sub(shapes.mul(full, block), extent)
    if cai.is_float(x):
        filler = -_INF if largest else float("nan")
    else:
        info = torch.iinfo(cai.dtype(x))
        filler = info.min if largest else info.max
    columns = cai.broadcast_to(cai.like(x, filler), [cai.size(x, 0), missing])
    return cai.concat(1, [x, columns])


def greatest_blocks(x: Value, block: int, largest: bool) -> Value:
    """Return the extreme of each block, `[rows, blocks]`; NaN is greatest."""
    extent = cai.size(x, 1)
    blocks = shapes.floordiv(extent, block)
    is_divisible = not isinstance(extent, int) or extent % block == 0
    head = x if is_divisible else cai.slice_axis(x, 1, 0, shapes.mul(blocks, block))
    cells = cai.reshape(head, [cai.size(x, 0), blocks, block])
    if largest:
        found = cai.reduce_max(cells, [2])
    elif not cai.is_float(x):
        found = cai.reduce_min(cells, [2])
    else:  # the minimum of a block ignores NaN, unless all elements are NaN
        is_nan = cai.not_equal(cells, cells)
        least = cai.reduce_min(cai.where(is_nan, cai.like(x, _INF), cells), [2])
        found = cai.where(cai.all_(is_nan, [2]), cai.like(x, float("nan")), least)
    return cai.shrink_dims(found, [2])
