"""Lower `searchsorted`, `bucketize` and `isin`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, decomposes, lowers
from ...lowering.cases import f16, f32, i32, i64
from ...torch_compat import aten

_NAN, _INF = float("nan"), float("inf")
_STEPS = (-1.0, 0.0, 0.0, 1.0, 1.5)
_PROBES = (-2.0, -1.0, 0.0, 0.5, 1.0, 1.5, 9.0, _INF, -_INF, _NAN)


_FEW = 64  # up to this many elements are compared one by one


def _rank(sequence: Value, x: Value, right: bool) -> Value:
    """Return the insertion position of each element of `x`, as si32.

    `sequence` is sorted, and a vector or with the leading axes of `x`.
    """
    count = cai.size(sequence, sequence.type.rank - 1)
    if isinstance(count, int) and 0 < count <= _FEW:
        return _smaller(sequence, x, right)
    return _searched(sequence, x, right)


def _smaller(sequence: Value, x: Value, right: bool) -> Value:
    """Return how many elements of the sequence are before each of `x`; all are before NaN."""
    rank = x.type.rank
    probe = cai.expand_dims(x, [rank])
    if sequence.type.rank > 1:
        sequence = cai.expand_dims(sequence, [rank - 1])
    if right:
        before = cai.logical_not(cai.greater(sequence, probe))
    else:
        before = cai.greater(probe, sequence)
        if cai.is_float(x):
            before = cai.logical_or(before, cai.not_equal(probe, probe))
    return cai.shrink_dims(cai.reduce_sum(cai.raw_cast(before, torch.int32), [rank]), [rank])


def _searched(sequence: Value, x: Value, right: bool) -> Value:
    """Return the position by binary search.

    The midpoints equal torch's, so a sequence that contains NaN or is not sorted gives torch's
    result.
    """
    dims = cai.sizes(x)
    batched = sequence.type.rank > 1
    values = x if batched else cai.reshape(x, [shapes.product(dims)])
    axis = values.type.rank - 1
    count = cai.size(sequence, axis)
    if count == 0:
        return cai.broadcast_to(cai.i32(0), dims)
    last = shapes.number(shapes.sub(count, 1))

    def is_after(found: Value) -> Value:
        after = cai.greater(found, values)
        return after if right else cai.logical_or(after, cai.equal(found, values))

    def step(bounds: Sequence[Value]) -> list[Value]:
        low, high = bounds
        middle = cai.floor_divide(cai.add(low, high), cai.i32(2))
        inside = cai.minimum(middle, last)  # a finished search may be at the end
        after = is_after(cai.gather_along_axis(sequence, inside, axis))
        higher = cai.minimum(cai.add(middle, cai.i32(1)), high)
        return [cai.where(after, low, higher), cai.where(after, middle, high)]

    if isinstance(count, int):
        middle = count // 2
        after = is_after(cai.slice_axis(sequence, axis, middle, middle + 1))
        low = cai.where(after, cai.i32(0), cai.i32(middle + 1))
        bounds = [low, cai.where(after, cai.i32(middle), cai.i32(count))]
        for _ in range(count.bit_length() - 1):
            bounds = step(bounds)
    else:
        start = [cai.broadcast_to(b, cai.sizes(values)) for b in (cai.i32(0), count)]
        bounds = graph.loop(start, lambda b: cai.any_one(cai.less(*b)), step)
    return bounds[0] if batched else cai.reshape(bounds[0], dims)


_SEARCHES = [
    case(f32(5, values=_STEPS), f32(10, values=_PROBES)),
    case(f32(5, values=_STEPS), f32(2, 5, values=_PROBES), right=True),
    case(f32(5, values=_STEPS), f32(2, 5, values=_PROBES), side="right", out_int32=True),
    case(f32(5, values=_STEPS), f32(10, values=_PROBES), side="left"),
    case(f32(2, 5, values=_STEPS), f32(2, 3, values=_PROBES)),
    case(f32(2, 5, values=_STEPS), f32(2, 3, values=_PROBES), right=True),
    case(f32(3, values=(1.0, -1.0, 0.0)), f32(4), sorter=i64(3, values=(1, 2, 0))),
    case(
        f32(2, 3, values=(1.0, -1.0, 0.0)),
        f32(2, 4),
        sorter=i64(2, 3, values=(1, 2, 0)),
        right=True,
    ),
    case(f32(5, values=_STEPS), f32()),
    case(i64(3, values=(1, 3, 5)), f32(3, values=(2.5, 3.0, 5.5))),
    case(i32(3, values=(2**24, 2**24 + 1, 2**24 + 2)), i32(2, values=(2**24 + 1, 2**24 + 2))),
    case(f16(5, values=_STEPS), f16(10, values=_PROBES)),
    case(f32(80, values=(*range(78), _NAN, _NAN)), f32(10, values=_PROBES)),
    case(f32(80, values=(*range(78), _NAN, _NAN)), f32(10, values=_PROBES), right=True),
    case(f32(70, values=(3.0, 1.0, 2.0)), f32(10, values=_PROBES)),  # not sorted
    case(
        i64(2, 70, values=tuple(range(0, 140, 2)), fixed=True),
        f32(2, 3, values=_PROBES, fixed=True),
    ),
    case(i32(3, values=(-(2**31), 0, 2**31 - 1)), i32(2, values=(2**31 - 1, -(2**31)))),
    case(f32(0), f32(3), static_only="an empty operand"),
    case(f32(3), f32(0), static_only="an empty operand"),
]


@lowers(
    aten.searchsorted.Scalar,
    promote=Promote.COMMON,
    ignore=("out_int32",),  # it is in ctx.out
    cases=[
        case(f32(5, values=_STEPS), 0.0),
        case(f32(5, values=_STEPS), 0.0, right=True),
        case(f32(5, values=_STEPS), 0.0, side="right", out_int32=True),
        case(f32(3, values=(1.0, -1.0, 0.0)), 0.5, sorter=i64(3, values=(1, 2, 0))),
        case(i64(3, values=(1, 3, 5)), 3),
        case(i64(3, values=(1, 3, 5)), 3.5),
    ],
)
@lowers(
    aten.searchsorted.Tensor,
    promote=Promote.COMMON,
    ignore=("out_int32",),  # it is in ctx.out
    cases=_SEARCHES,
)
def searchsorted(
    ctx: Ctx,
    sorted_sequence: Value,
    x: Value,
    right: bool,
    side: str | None,
    sorter: Any,  # indices, excluded from type promotion
) -> Value:
    if sorter is not None:
        last = sorted_sequence.type.rank - 1
        sorted_sequence = cai.gather_along_axis(sorted_sequence, sorter, last)
    return _rank(sorted_sequence, x, right or side == "right")


@lowers(
    aten.bucketize.Scalar,
    promote=Promote.COMMON,
    ignore=("out_int32",),  # it is in ctx.out
    cases=[
        case(0.0, f32(5, values=_STEPS)),
        case(0.0, f32(5, values=_STEPS), right=True, out_int32=True),
        case(2.5, i64(3, values=(1, 2, 3))),
    ],
)
@lowers(
    aten.bucketize.Tensor,
    promote=Promote.COMMON,
    ignore=("out_int32",),  # it is in ctx.out
    cases=[
        case(f32(10, values=_PROBES), f32(5, values=_STEPS)),
        case(f32(2, 5, values=_PROBES), f32(5, values=_STEPS), right=True),
        case(f32(10, values=_PROBES), f32(5, values=_STEPS, constant=True), out_int32=True),
        case(f32(2, values=(2.5, 3.0)), i64(3, values=(1, 2, 3))),
        case(i32(4), i32(3, values=(-3, 0, 4))),
        case(f32(), f32(5, values=_STEPS)),
        case(f32(3), f32(0), static_only="an empty operand"),
    ],
)
def bucketize(ctx: Ctx, x: Value, boundaries: Value, right: bool) -> Value:
    return _rank(boundaries, x, right)


def _among(x: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements of `x` that are in the vector `others`; NaN never is."""
    count = others.shape[0]
    if isinstance(count, int) and count <= _FEW:
        return (x.unsqueeze(-1) == others).any(-1)
    common = torch.promote_types(x.dtype, others.dtype)
    x, others = x.to(common), others.to(common)
    if common.is_floating_point:  # sort NaN as infinity; infinity is checked separately
        has_infinity = (others == _INF).any()
        others = torch.where(others.isnan(), _INF, others)
    ordered = others.sort().values
    place = torch.searchsorted(ordered, x)
    padded = torch.nn.functional.pad(ordered, (0, 1))
    nearest = padded.index_select(0, place.reshape(-1)).reshape(x.shape)
    found = (place < count) & (nearest == x)
    return found & ((x < _INF) | has_infinity) if common.is_floating_point else found


_AMONG = [
    case(f32(2, 3, values=(1.0, _NAN, 2.0)), f32(2, values=(_NAN, 2.0))),
    case(i64(2, 5), i64(4), invert=True),
    case(i64(2, 2, values=(1, 2, 3, 4)), i64(3, values=(2, 3, 9)), assume_unique=True),
    case(i64(2, 5), i64(2, 40)),
    case(i32(4), f32(2, values=(2.0, 3.5))),
    case(i64(), i64(3)),
    case(i64(2, 50), i64(2, 40)),
    case(f32(3, values=(1.0, _INF, _NAN)), f32(70, values=(1.0, 2.0, _NAN, 3.0, -_INF))),
    case(f32(3, values=(1.0, _INF, _NAN)), f32(70, values=(_INF, 2.0, _NAN, 3.0, -_INF))),
    case(i32(4), f32(70)),
]


@decomposes(aten.isin.Tensor_Tensor, cases=_AMONG)
def isin(
    elements: torch.Tensor,
    test_elements: torch.Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> torch.Tensor:
    found = _among(elements, test_elements.reshape(-1))
    return ~found if invert else found


@decomposes(
    aten.isin.Scalar_Tensor,
    cases=[case(2, i64(2, 5)), case(2, i64(2, 5), invert=True), case(0.5, f32(3))],
)
def isin_of_number(
    element: float,
    test_elements: torch.Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> torch.Tensor:
    found = (test_elements == element).any()
    return ~found if invert else found
