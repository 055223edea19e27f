"""Lower `cat`, `block_diag`, `split`, `repeat` and `repeat_interleave`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import shapes, types
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, Shape, case, decomposes, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64
from ...torch_compat import aten
from .pad import filled


@lowers(
    aten.cat.default,
    cases=[
        case([f32(2, 3), f32(2, 1)], 1),
        case([f32(2, 3), f32(4, 3)]),
        case([f32(2, 3, fixed=True), f32(4, 3)]),
        case([f32(2), f32(0), f32(3)], static_only="an empty operand"),
        case([f32(2, 3), f32(0)], 1, static_only="an empty operand of another rank"),
        case([f32(0), f32(2, 3)], 1, static_only="an empty operand of another rank"),
        case([i64(2), f32(3)], -1),
        case([f16(2), bf16(3), i8(2)]),
        case([b1(2), b1(2)]),
        case([b1(2), i32(2)]),
        case([c64(2, 2), c64(1, 2)]),
        case([f32(2, 3)], 1),
    ],
)
def cat(ctx: Ctx, tensors: Sequence[Value], dim: int) -> Value:
    """Concatenate; ignore empty tensors of any rank."""
    axis = dim % ctx.out.rank
    filled = [t for t in tensors if 0 not in t.type.shape] or list(tensors)
    cast = [cai.cast(t, ctx.out_dtype) for t in filled]
    # The dialect rejects a size that is static in one operand and dynamic in another.
    every = [ctx.out.shape, *(t.type.shape for t in cast)]
    known = [max(extents) for extents in zip(*every, strict=True)]  # a dynamic size is negative
    return cai.concat(axis, [cai.refine(t, _with_sizes(t, known, axis)) for t in cast])


def _with_sizes(x: Value, sizes: Sequence[int], axis: int) -> Any:
    """Return the type of `x` with these sizes on all axes but one."""
    sizes = [*sizes[:axis], x.type.shape[axis], *sizes[axis + 1 :]]
    return types.tensor(sizes, x.type.element_type)


@lowers(
    aten.block_diag.default,
    cases=[
        case([f32(2, 3), f32(3, 1), f32(1, 2)]),
        case([f32(2, 3, fixed=True), f32(4, 3)]),
        case([f32(), f32(3), f32(2, 2)]),
        case([f32(2, 3), i64(2), b1(1, 1)]),
        case([f32(2, 2, values=(float("nan"), float("inf"), 0.0, -1.0)), f32(1, 1)]),
        case([f32(2, 2), f32(0, 3), f32(2, 0)], static_only="an empty operand"),
        case([f32(0), f32(2, 2)], static_only="an empty operand"),
        case([f16(2, 2), bf16(1, 3)]),
        case([b1(2, 2), b1(1, 1)]),
        case([c64(2, 2), f32(1)]),
        case([f32(2, 3)]),
    ],
)
def block_diag(ctx: Ctx, tensors: Sequence[Value]) -> Value:
    cast = [cai.cast(t, ctx.out_dtype) for t in tensors]
    blocks = [cai.expand_dims(t, list(range(2 - t.type.rank))) for t in cast]
    widths = [cai.size(block, 1) for block in blocks]
    rows = []
    for i, block in enumerate(blocks):
        before, after = (reduce(shapes.add, w, 0) for w in (widths[:i], widths[i + 1 :]))
        rows.append(filled(block, [(0, 0), (before, after)], 0))
    stored = [row for row in rows if 0 not in row.type.shape] or rows[:1]
    return cai.refine(cai.concat(0, stored), ctx.out)


@lowers(
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.unsafe_split_with_sizes.default,
    cases=[
        case(f32(2, 5), [2, 3], 1, static_only="the sizes are numbers of the case"),
        case(f32(5, 2), [1, 4], static_only="the sizes are numbers of the case"),
        case(f32(2, 5), [2, 0, 3], -1, static_only="the sizes are numbers of the case"),
        case(i64(2, 4, fixed=True), [4, 0], 1),
        case(b1(3), [3], static_only="the sizes are numbers of the case"),
    ],
)
def split_with_sizes(ctx: Ctx, x: Value, split_sizes: Shape, dim: Axis) -> list[Any]:
    if all(ctx.uses(i) for i in range(len(ctx.outs))) and _is_plain(x, dim, split_sizes):
        return list(cai.split(x, dim, [int(size) for size in split_sizes]))
    parts: list[Any] = []
    start: Dim = 0
    for i, (size, promised) in enumerate(zip(split_sizes, ctx.outs, strict=True)):
        end = shapes.add(start, size)
        if ctx.uses(i):
            parts.append(_part(x, dim, start, end, promised))
        else:
            parts.append(None)
        start = end
    return parts


def _is_plain(x: Value, axis: int, sizes: Shape) -> bool:
    """Return whether one op can split; with a part of size zero it ends the process on GPUs."""
    known = [*sizes, cai.size(x, axis)]
    return (
        shapes.is_static(known) and all(sizes) and 0 not in x.type.shape and not cai.is_complex(x)
    )


def _part(x: Value, axis: int, start: Dim, end: Dim, promised: Any) -> Any:
    if 0 in promised.shape and types.DYNAMIC not in promised.shape:
        return torch.empty(tuple(promised.shape), dtype=types.dtype_of(promised))
    # Equal types with a dynamic size do not imply equal sizes: half of `[?, 4]` is also `[?, 4]`.
    if promised == x.type and start == 0 and promised.shape[axis] != types.DYNAMIC:
        return x
    return cai.slice_axis(x, axis, start, end)


@decomposes(aten.split_copy.Tensor, cases=[case(f32(5, 2, fixed=True), 2), case(f32(2, 3), 3, 1)])
def split_copy(x: torch.Tensor, split_size: int, dim: int = 0) -> list[torch.Tensor]:
    return [part.clone() for part in torch.split(x, split_size, dim)]


@decomposes(aten.unbind_copy.int, cases=[case(f32(2, 3, fixed=True)), case(f32(2, 3), 1)])
def unbind_copy(x: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [part.clone() for part in torch.unbind(x, dim)]


@lowers(
    aten.repeat.default,
    cases=[
        case(f32(2, 3), [2, 1]),
        case(f32(3), [4, 2]),
        case(f32(), [3]),
        case(f32(2, 3), [1, 1]),
        case(i64(2), [1, 2, 3]),
        case(b1(2), [2]),
        case(c64(2), [2]),
    ],
)
def repeat(ctx: Ctx, x: Value, repeats: Shape) -> Value:
    lead = len(repeats) - x.type.rank
    grown = cai.expand_dims(x, list(range(lead)))
    if all(isinstance(r, int) and r == 1 for r in repeats):
        return grown
    return cai.tile(grown, list(repeats))


@lowers(
    aten.repeat_interleave.Tensor,
    ignore=("output_size",),  # a hint that saves torch a synchronization
    cases=[
        case(i64(4, values=(1, 0, 3, 2))),
        case(i32(3, values=(2, 2, 1)), output_size=5),
        case(i64(1, values=(4,))),
    ],
)
def repeat_interleave(ctx: Ctx, repeats: Value) -> Value:
    """Repeat each index: mark the ends of the runs, then take the cumulative sum."""
    counts = cai.cast(repeats, torch.int32)
    ends = cai.scan(counts, 0, "sum")
    total = shapes.scalar(cai.slice_axis(ends, 0, -1, shapes.FAR))
    # One element more than the result: runs that end with the result set a mark there, and the
    # tensor is never empty, which would crash the runtime.
    marks = cai.zeros(ends, [shapes.add(total, 1)])
    ones = cai.broadcast_to(cai.like(ends, 1), cai.sizes(ends))
    steps = cai.scatter_along_axis(marks, ends, ones, 0, "add")
    return cai.cast(cai.slice_axis(cai.scan(steps, 0, "sum"), 0, 0, total), ctx.out_dtype)
