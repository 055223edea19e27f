"""Matrix product of gathered operands as a function."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._shapes import INDICES, differ, require_dtype, shape_text

_OP = "gather_mm"


def gather_mm(
    lhs: Tensor,
    rhs: Tensor,
    lhs_indices: Tensor | None = None,
    rhs_indices: Tensor | None = None,
    num_batch_axes: int = 0,
) -> Tensor:
    """Multiply gathered operands; see `GatherMM` for the arguments."""
    if lhs.dtype != rhs.dtype:
        raise ValueError(f"{_OP}: lhs is {lhs.dtype} and rhs {rhs.dtype}; they must be equal")
    left = _gather(lhs, lhs_indices, num_batch_axes)
    right = _gather(rhs, rhs_indices, num_batch_axes)
    if not _multiply(left.shape, right.shape):
        raise ValueError(
            f"{_OP}: cannot multiply lhs {shape_text(left.shape)} "
            f"and rhs {shape_text(right.shape)} (shapes after gathering)"
        )
    return left @ right


def _multiply(left: Sequence[int], right: Sequence[int]) -> bool:
    """Return whether the matrices (last two axes) can be multiplied and the batches broadcast."""
    if len(left) < 2 or len(right) < 2 or differ(left[-1], right[-2]):
        return False
    pairs = zip(reversed(left[:-2]), reversed(right[:-2]), strict=False)
    return not any(differ(a, b) and differ(a, 1) and differ(b, 1) for a, b in pairs)


def _gather(x: Tensor, indices: Tensor | None, num_batch_axes: int = 0) -> Tensor:
    """Replace axis `num_batch_axes` of `x` by the axes of `indices`."""
    if indices is None:
        return x
    require_dtype(_OP, INDICES, indices=indices)
    if not 0 <= num_batch_axes < x.dim():
        raise ValueError(
            f"{_OP}: cannot gather axis {num_batch_axes} (num_batch_axes) of an operand of shape "
            f"{shape_text(x.shape)}"
        )
    if indices.dtype not in (torch.int32, torch.int64):
        indices = indices.to(torch.int32)  # torch reads uint8 as a mask and rejects the others
    return x[(slice(None),) * num_batch_axes + (indices,)]
