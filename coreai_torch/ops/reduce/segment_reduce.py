"""Lower segment_reduce, with segments given by lengths or by offsets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from ...lowering import case, decomposes
from ...lowering.cases import T, bf16, f16, f32, i64
from ...torch_compat import aten
from .._lib.ranges import count_not_above

_IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


_SCATTER = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


def _segments(begins: Tensor, ends: Tensor, size: Any) -> Tensor:
    """Return the segment of each element; elements of no segment get the number of segments."""
    found = count_not_above(ends, size).to(torch.int64)
    return torch.where(torch.arange(size) >= begins[..., :1], found, ends.shape[-1])


def _limits(lengths: Tensor | None, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    if offsets is not None:
        return offsets[..., :-1], offsets[..., 1:]
    if lengths is None:
        raise ConversionError(
            "segment_reduce: indices are not supported\n  try   pass lengths or offsets"
        )
    ends = lengths.cumsum(-1)
    return ends - lengths, ends


_LENGTHS = i64(4, fixed=True, values=(2, 0, 3, 0))


_NAN, _INF = float("nan"), float("inf")
_EXTREME = (1.0, _NAN, 3.0, -2.0, _INF, -_INF, -_INF, _NAN, 2.0)
_EXTREME_LENGTHS = i64(6, fixed=True, values=(2, 0, 3, 2, 2, 0))


def _case(data: T, reduce: str, **more: Any) -> Any:
    """Return a case with the segment lengths above."""
    return case(data, reduce, lengths=_LENGTHS, **more)


@decomposes(
    aten.segment_reduce.default,
    cases=[
        *(_case(f32(5, fixed=True), r, initial=2) for r in _IDENTITY),
        *(_case(f32(5, 3, fixed=True), r) for r in _IDENTITY),
        *(
            case(f32(9, fixed=True, values=_EXTREME), r, lengths=_EXTREME_LENGTHS)
            for r in _IDENTITY
        ),
        _case(f16(5, fixed=True), "sum", unsafe=True),
        _case(bf16(5, fixed=True), "max"),
        case(
            f32(2, 5, 3, fixed=True),
            "mean",
            offsets=i64(2, 4, fixed=True, values=(0, 2, 2, 5, 0, 1, 3, 4)),
            axis=1,
            initial=1,
        ),
    ],
)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    begins, ends = _limits(lengths, offsets)
    axis = axis % data.dim()
    start = _IDENTITY[reduce] if initial is None else float(initial)
    count = ends.shape[-1]
    trailing = (1,) * (data.dim() - axis - 1)
    segments = _segments(begins, ends, data.shape[axis])
    index = segments.reshape(*segments.shape, *trailing).expand(data.shape)
    # The last row takes the elements of no segment.
    shape = (*data.shape[:axis], count + 1, *data.shape[axis + 1 :])
    rows = data.new_full(shape, start, dtype=torch.float32)
    rows = rows.scatter_reduce(axis, index, data.to(torch.float32), _SCATTER[reduce])
    result = rows.narrow(axis, 0, count)
    if reduce == "mean":
        sizes = (ends - begins).reshape(*ends.shape, *trailing)
        empty_mean = float("nan") if initial is None else start
        result = torch.where(sizes > 0, result / sizes.clamp(min=1), empty_mean)
    return result.to(data.dtype)
