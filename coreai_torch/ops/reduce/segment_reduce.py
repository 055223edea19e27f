"""Reductions over runs of an axis, given by their lengths or by where they begin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from ...lowering import case, decomposes
from ...lowering.cases import T, bf16, f16, f32, i64
from ...torch_compat import aten

_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _inside(begins: Tensor, ends: Tensor, size: Any) -> Tensor:
    """Which elements belong to which run; the one put in front belongs to all."""
    places = torch.arange(-1, size)
    within = (places >= begins.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    return within | (places < 0)


def _limits(lengths: Tensor | None, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    if offsets is not None:
        return offsets[..., :-1], offsets[..., 1:]
    if lengths is None:
        raise ConversionError("segment_reduce: indices\n  try   lengths or offsets")
    ends = lengths.cumsum(-1)
    return ends - lengths, ends


_RUNS = i64(4, fixed=True, values=(2, 0, 3, 0))


def _given(data: T, reduce: str, **more: Any) -> Any:
    return case(data, reduce, lengths=_RUNS, **more)


@decomposes(
    aten.segment_reduce.default,
    cases=[
        *(_given(f32(5, fixed=True), r, initial=2) for r in _NEUTRAL),
        *(_given(f32(5, 3, fixed=True), r) for r in _NEUTRAL),
        _given(f16(5, fixed=True), "sum", unsafe=True),
        _given(bf16(5, fixed=True), "max"),
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
    start = _NEUTRAL[reduce] if initial is None else float(initial)
    given = data.to(torch.float32)
    front = given.new_full((*data.shape[:axis], 1, *data.shape[axis + 1 :]), start)
    given = torch.cat([front, given], axis).unsqueeze(axis)
    later = (1,) * (data.dim() - axis - 1)
    inside = _inside(begins, ends, data.shape[axis])
    inside = inside.reshape(*inside.shape, *later)
    kept = torch.where(inside, given, _NEUTRAL[reduce])
    dim = axis + 1
    if reduce in ("max", "min"):
        found = kept.amax(dim) if reduce == "max" else kept.amin(dim)
    else:
        found = kept.prod(dim) if reduce == "prod" else kept.sum(dim)
    if reduce == "mean":
        count = (ends - begins).reshape(*ends.shape, *later)
        nothing = float("nan") if initial is None else start
        found = torch.where(count > 0, found / count.clamp(min=1), nothing)
    return found.to(data.dtype)
