"""Products of complex numbers along an axis of static size.

The runtime has them for real numbers only. Real and imaginary parts are multiplied pair by pair;
the order of the factors differs from torch's, so that other partial products may overflow.
"""

from __future__ import annotations

from ...ir import dialect as cai
from ...ir.dialect import Value
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


def running_product(ctx: Ctx, x: Value, axis: int) -> Value:
    """Multiply each element by the one 1, 2, 4, ... places before it."""
    found, count = _parts(ctx, x, axis)
    step = 1
    while step < count:
        later = _times(_part(found, axis, step, count), _part(found, axis, 0, count - step))
        found = _join(axis, _part(found, axis, 0, step), later)
        step *= 2
    return cai.create_complex(*found)
