"""Lower segment_reduce, with segments given by lengths or by offsets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from ...lowering import case, decomposes
from ...lowering.cases import T, bf16, f16, f32, i64
from ...torch_compat import aten

_IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _inside(begins: Tensor, ends: Tensor, size: Any) -> Tensor:
    """Return which elements belong to which segment; the initial element, at -1, belongs to all."""
    positions = torch.arange(-1, size)
    within = (positions >= begins.unsqueeze(-1)) & (positions < ends.unsqueeze(-1))
    return within | (positions < 0)


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


def _case(data: T, reduce: str, **more: Any) -> Any:
    """Return a case with the segment lengths above."""
    return case(data, reduce, lengths=_LENGTHS, **more)


@decomposes(
    aten.segment_reduce.default,
    cases=[
        *(_case(f32(5, fixed=True), r, initial=2) for r in _IDENTITY),
        *(_case(f32(5, 3, fixed=True), r) for r in _IDENTITY),
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
    values = data.to(torch.float32)
    first = values.new_full((*data.shape[:axis], 1, *data.shape[axis + 1 :]), start)
    values = torch.cat([first, values], axis).unsqueeze(axis)
    trailing = (1,) * (data.dim() - axis - 1)
    inside = _inside(begins, ends, data.shape[axis])
    inside = inside.reshape(*inside.shape, *trailing)
    masked = torch.where(inside, values, _IDENTITY[reduce])
    dim = axis + 1
    if reduce in ("max", "min"):
        result = masked.amax(dim) if reduce == "max" else masked.amin(dim)
    else:
        result = masked.prod(dim) if reduce == "prod" else masked.sum(dim)
    if reduce == "mean":
        count = (ends - begins).reshape(*ends.shape, *trailing)
        empty_mean = float("nan") if initial is None else start
        result = torch.where(count > 0, result / count.clamp(min=1), empty_mean)
    return result.to(data.dtype)
