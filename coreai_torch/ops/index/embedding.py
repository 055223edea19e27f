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
_NARROW_ROW = 64  # longest row whose elements are gathered one by one
_RADIX = 3  # rows of a block, and blocks of a block of the next level
_DYNAMIC_RADIX = 4  # the same, if the number of levels cannot be chosen
_MOST_LEVELS = 6


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
    """Return the reduced bags, and the tensors that torch saves for the gradient."""
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
    if width is not None:
        rows = _counted_rows(weight, indices, per_sample_weights, padding_idx)
        total = rows.unflatten(0, (-1, width)).sum(1)
    else:
        total = _sum_per_bag(weight, indices, starts, per_sample_weights, padding_idx)
    if mode == _SUM:
        zeros = torch.zeros_like(size)
        return total.to(weight.dtype), indices.new_empty(0), zeros, zeros.clone()
    is_known = isinstance(width, int) and padding_idx < 0
    mean = total / (width if is_known else size.clamp(min=1).unsqueeze(1))
    return mean.to(weight.dtype), bag, size, size.clone()


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
    """Return the row of each index in float32, weighted, and zeros for the padding."""
    rows = _rows(weight, indices).float()
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if padding_idx >= 0:
        rows = torch.where((indices != padding_idx).unsqueeze(1), rows, 0)
    return rows


def _rows(weight: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the row of each index.

    A gathered row takes 0.5 µs, whatever its length up to 64; a gathered element takes 7 ns
    (coreai-core 1.0.0b3, x86).
    """
    count, width = weight.shape
    is_narrow = isinstance(width, int) and width <= _NARROW_ROW
    if not is_narrow or (isinstance(count, int) and count * width >= 2**31):
        return aten.embedding.default(weight, indices)
    column = torch.arange(width, dtype=torch.int32, device=weight.device)
    place = (indices.to(torch.int32) * width).unsqueeze(-1) + column
    elements = weight.reshape(-1).gather(0, place.reshape(-1).long())
    return elements.reshape(*indices.shape, width)


def _blocks(count: Any, bags: Any) -> tuple[int, int]:
    """Return the radix, and how often `_sum_per_bag` sums blocks before it scatters them.

    A scatter takes 82 ns for each element (coreai-core 1.0.0b3, x86). A level divides the scattered
    rows by `_RADIX`, takes 39 ns for each element of the result, and gathers four rows for each
    bag. It gains time as long as there are more blocks than bags.
    """
    if not (isinstance(count, int) and isinstance(bags, int)):
        return _DYNAMIC_RADIX, 2
    levels = 1
    while count > bags * _RADIX**levels and levels < _MOST_LEVELS:
        levels += 1
    return _RADIX, levels


def _sum_per_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    starts: torch.Tensor,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int,
) -> torch.Tensor:
    """Return the sum of each bag in float32, as torch sums also float16 and bfloat16.

    Sum aligned blocks of rows, and blocks of blocks. A bag consists of blocks of the last level,
    which are scattered into their bags, and of a few blocks of each lower level at both of its
    ends, which are gathered. No sum includes a row of another bag: it may be infinite.
    """
    count, bags = indices.shape[0], starts.shape[0]
    radix, levels = _blocks(count, bags)
    block = radix**levels
    padded = ((count + block - 1) // block + 1) * block  # at least one block of zeros at the end
    zeros = indices.new_zeros(padded - count)
    rows = _rows(weight, torch.cat([indices, zeros])).float()
    if per_sample_weights is not None:
        factors = torch.cat([per_sample_weights, per_sample_weights.new_zeros(padded - count)])
        rows = rows * factors.unsqueeze(1)
    if padding_idx >= 0:
        is_counted = torch.cat([indices != padding_idx, zeros > 0])
        rows = torch.where(is_counted.unsqueeze(1), rows, 0)
    else:
        rows = torch.slice_scatter(rows, rows.new_zeros(padded - count, rows.shape[1]), 0, count)
    limits = torch.cat([starts, starts.new_full((1,), count)])
    total: torch.Tensor | float = 0.0
    begin, end = starts, limits[1:]
    for _ in range(levels):
        outside, begin, end = _rows_at_ends(rows, begin, end, radix)
        total = total + outside
        rows = rows.unflatten(0, (-1, radix)).sum(1)
    bag = count_not_above(limits, padded).unflatten(0, (-1, block)) - 1
    first, last = bag[:, 0], bag[:, -1]
    place = torch.where(first == last, first, bags).to(torch.int64)
    inside = rows.new_zeros(bags + 1, rows.shape[1]).index_add(0, place, rows)[:bags]
    return total + inside


def _rows_at_ends(
    rows: torch.Tensor, begin: torch.Tensor, end: torch.Tensor, radix: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the sum of the rows of each bag outside full blocks, and its first and last block.

    The last row is zero.
    """
    first, last = (begin + (radix - 1)) // radix, end // radix
    left_end = torch.minimum(first * radix, end)
    right_begin = torch.maximum(last * radix, left_end)
    steps = torch.arange(radix - 1, device=rows.device)
    nothing = rows.shape[0] - 1
    places = [
        torch.where(at < limit.unsqueeze(1), at, nothing)
        for at, limit in (
            (begin.unsqueeze(1) + steps, left_end),
            (right_begin.unsqueeze(1) + steps, end),
        )
    ]
    gathered = _rows(rows, torch.cat(places, 1))
    return gathered.sum(1), first, torch.maximum(first, last)


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
