"""Lower embedding, embedding_bag and embedding_renorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, case, decomposes, lowers
from ...lowering.cases import bf16, f16, f32, i32, i64
from ...torch_compat import aten, computed_by
from .._lib.ranges import count_not_above
from .._lib.subscript import gather_rows

_SUM, _MEAN, _MAX = 0, 1, 2
_NAN, _INF = float("nan"), float("inf")


@lowers(
    aten.embedding.default,
    # They affect the gradient only.
    ignore=("padding_idx", "scale_grad_by_freq", "sparse"),
    cases=[
        case(f32(5, 3), i64(2, 2, values=(4, 0, 1, 1))),
        case(f32(5, 32, constant=True), i32(3, values=(4, 0, 1)), 0),
        case(f16(5, 32), i64(values=(2,)), -1, True, True),
        case(bf16(5, 32), i64(2, values=(2, 4))),
    ],
)
def embedding(ctx: Ctx, weight: Value, indices: Value) -> Value:
    return gather_rows(weight, cai.cast(indices, torch.int32))


@decomposes(
    aten.embedding_renorm.default,
    cases=[
        case(f32(5, 3), i64(3, values=(4, 0, 4)), 1.0, 2.0),
        case(f32(5, 3), i64(2, 2, values=(1, 0)), 0.5, 1.0),
    ],
)
def embedding_renorm(
    x: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    """Renormalize only the rows that `indices` names."""
    norm = torch.linalg.vector_norm(x, norm_type, dim=1, keepdim=True)
    shortened = torch.where(norm > max_norm, x * (max_norm / (norm + 1e-7)), x)
    unselected = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)
    selected = torch.index_fill(unselected, 0, indices.reshape(-1), True)
    return torch.where(selected.unsqueeze(1), shortened, x)


_BAGS = [
    case(f32(6, 3), i64(5, values=(5, 0, 1, 1, 2)), i64(2, values=(0, 3)), mode=_SUM),
    case(f32(6, 3), i64(5, values=(5, 0, 1, 1, 2)), i64(3, values=(0, 3, 3)), mode=_MEAN),
    case(f32(6, 3), i64(5, values=(5, 0, 1, 1, 2)), i64(3, values=(0, 0, 2)), mode=_MAX),
    case(
        f32(6, 3),
        i64(4, values=(5, 0, 1, 1)),
        i64(2, values=(0, 3)),
        False,
        _SUM,
        False,
        f32(4),
    ),
    case(
        f32(6, 3),
        i64(4, values=(5, 0, 1, 1)),
        i64(2, values=(0, 2)),
        mode=_MAX,
        padding_idx=1,
    ),
    case(
        f16(6, 3),
        i64(5, values=(5, 0, 1, 1, 2)),
        i64(3, values=(0, 3, 3)),
        mode=_MEAN,
    ),
    case(
        f16(6, 3),
        i64(700, values=(5, 0, 1, 1, 2)),
        i64(2, values=(0, 3)),
        mode=_SUM,
        one_size="the sum of fewer rows may be 0",
    ),
    case(
        f32(4, 2, values=(1.0, _NAN, _NAN, 2.0, -3.0, -4.0, -_INF, _INF)),
        i64(9, values=(2, 0, 1, 2, 2, 1, 3, 3, 2)),
        i64(5, values=(0, 2, 4, 6, 8)),
        mode=_MAX,
    ),
]


@decomposes(
    aten._embedding_bag.default,
    cases=[
        *_BAGS,
        case(
            f32(6, 3),
            i64(4, values=(5, 0, 1, 1)),
            i64(3, values=(0, 3, 4)),
            mode=_MEAN,
            include_last_offset=True,
            padding_idx=1,
        ),
    ],
)
@decomposes(aten._embedding_bag_forward_only.default, cases=_BAGS)
def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, ...]:
    """Return the reduced bags, and the tensors that torch saves for the gradient.

    With `include_last_offset`, the last offset should be the number of indices. If it is smaller,
    torch's kernels differ: see `_ends_at_last_offset`.
    """
    starts = offsets[:-1] if include_last_offset else offsets
    bag = count_not_above(starts, indices.shape[0]).to(starts.dtype) - 1
    counts = (indices != padding_idx).to(indices.dtype)
    width = None if include_last_offset else _equal_bags(offsets, indices.shape[0])
    if width is not None and padding_idx < 0:
        size = torch.full_like(starts, width, dtype=indices.dtype)
    elif width is not None:
        size = counts.unflatten(0, (-1, width)).sum(1, dtype=counts.dtype)
    else:
        size = torch.zeros_like(starts).to(indices.dtype).index_add(0, bag, counts)
    if mode == _MAX:
        out, first = _max_per_bag(weight[indices], bag, counts, starts.shape[0])
        selected = torch.where(size.unsqueeze(1) > 0, indices[first], 0)
        return torch.where(size.unsqueeze(1) > 0, out, 0), bag, size, selected
    rows = _counted_rows(weight, indices, per_sample_weights, padding_idx)
    if mode == _MEAN and isinstance(width, int) and padding_idx < 0:
        return rows.unflatten(0, (-1, width)).mean(1), bag, size, size.clone()
    if mode == _MEAN:  # a sum of 100 rows of 1,000 is infinite in float16
        rows = rows.float()
    if width is not None:
        total = rows.unflatten(0, (-1, width)).sum(1)
    else:
        limits = torch.cat([starts, starts.new_full((1,), indices.shape[0])])
        if include_last_offset and _ends_at_last_offset(weight, padding_idx):
            limits = offsets
        total = _sum_per_bag(rows, limits)
    if mode == _SUM:
        zeros = torch.zeros_like(size)
        return total, indices.new_empty(0), zeros, zeros.clone()
    mean = total / size.clamp(min=1).unsqueeze(1)
    return mean.to(weight.dtype), bag, size, size.clone()


def _ends_at_last_offset(weight: torch.Tensor, padding_idx: int) -> bool:
    """Return whether torch's sum of the last bag ends at the last offset.

    The kernel without padding sums up to the last offset, as in the CSR format that the
    documentation refers to. The kernels with padding, of float64 tables and of transposed ones sum
    up to the last index, and so do all maxima. The mean divides by the number of all indices.
    """
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    return padding_idx < 0 and weight.dtype in narrow and weight.stride(1) == 1


def _equal_bags(offsets: torch.Tensor, count: Any) -> Any:
    """Return how many of `count` indices each bag has, if all have as many, else None.

    For a matrix of indices, torch computes the offsets as `arange(0, count, columns)`.
    """
    node = computed_by(offsets)
    if node is None or node.target != aten.arange.start_step or len(node.args) < 3:
        return None
    start, end, step = (a.meta["val"] if isinstance(a, fx.Node) else a for a in node.args[:3])
    is_whole = start == 0 and statically_known_true(end == count)
    return step if is_whole and statically_known_true(count % step == 0) else None


def _counted_rows(
    weight: torch.Tensor,
    indices: torch.Tensor,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int,
) -> torch.Tensor:
    """Return the row of each index, weighted, and zeros for the padding."""
    rows: torch.Tensor = aten.embedding.default(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if padding_idx >= 0:
        rows = torch.where((indices != padding_idx).unsqueeze(1), rows, 0)
    return rows


def _sum_per_bag(rows: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """Return the sum of the rows of each bag.

    `limits` are the first place of each bag and the end of the last one.
    """
    bags = limits.shape[0] - 1
    bag = count_not_above(limits, rows.shape[0]).to(torch.int64)  # 1 for the first bag
    return rows.new_zeros(bags + 2, rows.shape[1]).index_add(0, bag, rows)[1:-1]


def _max_per_bag(
    rows: torch.Tensor, bag: torch.Tensor, counts: torch.Tensor, bags: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maximum of each bag per column, and the position of its first occurrence.

    Torch starts with the first row of a bag and replaces it by greater values: a NaN in the first
    row is the result, and a NaN in a later row is ignored.
    """
    count, least = rows.shape[0], float("-inf")
    position = torch.arange(count, device=rows.device)
    counted = counts > 0
    last = torch.full((bags,), count - 1, dtype=position.dtype, device=rows.device)
    begin = last.scatter_reduce(0, bag, torch.where(counted, position, count - 1), "amin")
    comparable = counted.unsqueeze(1) & (rows == rows)
    masked = torch.where(comparable, rows, least)
    column = bag.unsqueeze(1).expand(rows.shape)
    out = torch.full((bags, rows.shape[1]), least, dtype=rows.dtype, device=rows.device)
    out = out.scatter_reduce(0, column, masked, "amax")
    is_greatest = comparable & (masked == out[bag])
    found = torch.where(is_greatest, position.unsqueeze(1), count - 1)
    first = last.unsqueeze(1).expand(out.shape).scatter_reduce(0, column, found, "amin")
    head = rows[begin]
    begins_with_nan = head != head
    return (
        torch.where(begins_with_nan, head, out),
        torch.where(begins_with_nan, begin.unsqueeze(1), first),
    )
