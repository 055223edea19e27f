"""Where values fall within a sorted sequence, and whether they are among others."""

from __future__ import annotations

from typing import Any

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, decomposes, lowers
from ...lowering.cases import f16, f32, i32, i64
from ...torch_compat import aten

_NAN, _INF = float("nan"), float("inf")
_STEPS = (-1.0, 0.0, 0.0, 1.0, 1.5)
_PROBES = (-2.0, -1.0, 0.0, 0.5, 1.0, 1.5, 9.0, _INF, -_INF, _NAN)


def _rank(sequence: Value, x: Value, right: bool) -> Value:
    """How many elements of the sequence come before each of `x`, as si32; NaN goes last.

    Every element is held against every other: the dialect has no search.
    """
    ahead = sequence if sequence.type.rank == 1 else cai.expand_dims(sequence, [x.type.rank - 1])
    each = cai.expand_dims(x, [x.type.rank])
    after = cai.greater(ahead, each)
    if not right:
        after = cai.logical_or(after, cai.equal(ahead, each))
    last = max(ahead.type.rank, each.type.rank) - 1
    before = cai.raw_cast(cai.logical_not(after), torch.int32)
    return cai.shrink_dims(cai.reduce_sum(before, [last]), [last])


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
    sorter: Any,  # indices, which take no part in the promotion
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
    if 0 in boundaries.type.shape:
        return cai.broadcast_to(cai.i32(0), cai.sizes(x))
    return _rank(boundaries, x, right)


_AMONG = [
    case(f32(2, 3, values=(1.0, _NAN, 2.0)), f32(2, values=(_NAN, 2.0))),
    case(i64(2, 5), i64(4), invert=True),
    case(i64(2, 2, values=(1, 2, 3, 4)), i64(3, values=(2, 3, 9)), assume_unique=True),
    case(i64(2, 5), i64(2, 40)),
    case(i32(4), f32(2, values=(2.0, 3.5))),
    case(i64(), i64(3)),
]


@decomposes(aten.isin.Tensor_Tensor, cases=_AMONG)
def isin(
    elements: torch.Tensor,
    test_elements: torch.Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> torch.Tensor:
    found = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
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
