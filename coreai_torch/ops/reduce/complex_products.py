"""Products of complex numbers along an axis of static size.

The run time has them for real numbers only. Real and imaginary parts are multiplied pair by pair;
the order of the factors differs from torch's, so that other partial products may overflow.
"""

from __future__ import annotations

import math

from ...ir import dialect as cai
from ...ir.dialect import Dim, Value
from ...lowering import Ctx

_Pair = tuple[Value, Value]


def _times(x: _Pair, y: _Pair) -> _Pair:
    (a, b), (c, d) = x, y
    real = cai.sub(cai.mul(a, c), cai.mul(b, d))
    return real, cai.add(cai.mul(a, d), cai.mul(b, c))


def _part(x: _Pair, axis: int, start: int, end: int) -> _Pair:
    return cai.slice_axis(x[0], axis, start, end), cai.slice_axis(x[1], axis, start, end)


def _join(axis: int, first: _Pair, second: _Pair) -> _Pair:
    return cai.concat(axis, [first[0], second[0]]), cai.concat(axis, [first[1], second[1]])


def _parts(ctx: Ctx, x: Value, axis: int) -> tuple[_Pair, int]:
    """Return both parts and the number of factors."""
    count = cai.size(x, axis)
    if not isinstance(count, int) or not count:
        kind = "empty" if count == 0 else "dynamic"
        ctx.refuse(f"the product of complex numbers along an axis of {kind} size is not supported")
    return (cai.real_part(x), cai.imaginary_part(x)), count


def product(ctx: Ctx, x: Value, axis: int) -> Value:
    """Multiply all elements along an axis, which stays with the size 1."""
    found, count = _parts(ctx, x, axis)
    while count > 1:
        half = count // 2
        rest = _part(found, axis, 2 * half, count) if count % 2 else None
        found = _times(_part(found, axis, 0, half), _part(found, axis, half, 2 * half))
        found = found if rest is None else _join(axis, found, rest)
        count = half + count % 2
    return cai.create_complex(*found)


def _one_by_one(x: _Pair, axis: int, count: int) -> _Pair:
    """Multiply each element by the result before it."""
    found = [_part(x, axis, 0, 1)]
    for k in range(1, count):
        found.append(_times(found[-1], _part(x, axis, k, k + 1)))
    return cai.concat(axis, [f[0] for f in found]), cai.concat(axis, [f[1] for f in found])


def _reshape(x: _Pair, dims: list[Dim]) -> _Pair:
    return cai.reshape(x[0], dims), cai.reshape(x[1], dims)


def running_product(ctx: Ctx, x: Value, axis: int) -> Value:
    """Multiply each element by all earlier ones, in as many runs as a run has elements.

    All runs take their steps together; then each is multiplied by those before it. Passes over all
    elements, with factors 1, 2, 4, ... places before them, took 3 times as long for 1,000 numbers.
    """
    found, count = _parts(ctx, x, axis)
    length = math.isqrt(count - 1) + 1
    runs = -(-count // length)
    dims = cai.sizes(x)
    if runs * length > count:
        sides = [(0, runs * length - count if k == axis else 0) for k in range(x.type.rank)]
        found = cai.pad(found[0], sides, 1.0), cai.pad(found[1], sides, 0.0)
    split = [*dims[:axis], runs, length, *dims[axis + 1 :]]
    found = _one_by_one(_reshape(found, split), axis + 1, length)
    if runs > 1:
        ends = _one_by_one(_part(found, axis + 1, length - 1, length), axis, runs)
        later = _times(_part(found, axis, 1, runs), _part(ends, axis, 0, runs - 1))
        found = _join(axis, _part(found, axis, 0, 1), later)
    found = _reshape(found, [*dims[:axis], runs * length, *dims[axis + 1 :]])
    return cai.create_complex(*_part(found, axis, 0, count))
