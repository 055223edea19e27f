"""Sorting, gathering and scattering elements by index."""

from __future__ import annotations

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Attribute, Value

from . import shapes, types
from .build import Build
from .literals import constant, zeros
from .operands import check_choice, vocabulary
from .rearranging import concat, slice_axis
from .reductions import with_extra_row
from .shapes import i32, reshape, size, sizes

_SCATTER_MODES = ("update", "add", "sub", "mul", "div", "min", "max")


@vocabulary
def non_zero(x: Value) -> Value:
    """Return the positions of all elements other than zero, in order.

    Args:
        x: a tensor of floats, integers or booleans.

    Returns:
        An int32 tensor `[count, rank]`; `count` is dynamic.

    Examples:
        >>> evaluate(dialect.non_zero, [[0.0, 5.0], [7.0, 0.0]])
        tensor([[0, 1],
                [1, 0]], dtype=torch.int32)
    """
    return gen.NonZeroOp(x).result


@vocabulary
def sort(x: Value, axis: int, descending: bool) -> Value:
    """Sort along an axis.

    Args:
        x: a tensor of floats or integers.
        axis: the axis.
        descending: whether the largest element comes first.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.sort(x, 0, False), [3.0, 1.0, 2.0])
        tensor([1., 2., 3.])
    """
    flags = constant(descending, torch.bool), constant(True, torch.bool)
    return with_extra_row(x, axis, lambda y: gen.SortOp(y.type, y, i32(axis), *flags).result)


@vocabulary
def argsort(x: Value, axis: int, descending: bool) -> Value:
    """Return the indices that sort along an axis; equal elements keep their order.

    Descending puts NaN last; torch puts it first.

    Args:
        x: a tensor of floats or integers.
        axis: the axis.
        descending: whether the largest element comes first.

    Returns:
        An int32 tensor in the sizes of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.argsort(x, 0, True), [3.0, 1.0, 2.0])
        tensor([0, 2, 1], dtype=torch.int32)
    """
    flags = constant(descending, torch.bool), constant(True, torch.bool)
    return with_extra_row(x, axis, lambda rows: gen.ArgSortOp(rows, i32(axis), *flags).result)


@vocabulary
def gather_along_axis(x: Value, indices: Value, axis: int) -> Value:
    """Select elements along an axis, one for each index, as `torch.gather`.

    Args:
        x: a tensor of floats, integers or booleans.
        indices: an int32 tensor, not negative, in the sizes of `x` on all other axes.
        axis: the axis.

    Returns:
        A tensor of the element type of `x` in the sizes of `indices`.

    Examples:
        >>> evaluate(lambda x, i: dialect.gather_along_axis(x, i, 1), [[1.0, 2.0]], [[1, 1, 0]])
        tensor([[2., 2., 1.]])
    """
    return gen.GatherAlongAxisOp(x, indices, i32(axis)).result


@vocabulary
def gather_nd(x: Value, indices: Value) -> Value:
    """Select entries by their position on the leading axes.

    Args:
        x: a tensor of any element type.
        indices: an int32 tensor, not negative; its last axis has a position on each of the
            leading axes of `x`.

    Returns:
        A tensor of the element type of `x`.

    Examples:
        >>> evaluate(dialect.gather_nd, [[1.0, 2.0], [3.0, 4.0]], [[1, 0], [0, 1]])
        tensor([3., 2.])
    """
    return gen.GatherNdOp(x, indices).result


@vocabulary
def scatter_nd(x: Value, indices: Value, updates: Value) -> Value:
    """Return `x` with entries replaced by position; the last of duplicates wins.

    Args:
        x: a tensor of any element type.
        indices: an int32 tensor; its last axis has a position on each of the leading axes of `x`.
        updates: a tensor of the element type of `x` with one entry for each position.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(dialect.scatter_nd, [1.0, 2.0, 3.0], [[2], [0]], [8.0, 9.0])
        tensor([9., 2., 8.])
    """
    if updates.type.rank > x.type.rank:  # aborts otherwise: entries [2, 2] into [12]
        *entries, depth = sizes(indices)
        row = sizes(updates)[len(entries) :]
        count = shapes.product(entries)
        indices, updates = reshape(indices, [count, depth]), reshape(updates, [count, *row])
    if not Build.current().zero_sizes.of(indices) or indices.type.rank != 2:
        return _coreai.scatter_nd(x, indices, updates)
    # It crashes without entries: one more is written, to a row that is then cut off.
    count, depth = size(x, 0), indices.type.shape[1]
    end = concat(0, [shapes.vector([count]), *([i32([0] * (depth - 1))] if depth > 1 else [])])
    indices = concat(0, [indices, reshape(end, [1, depth])])
    updates = concat(0, [updates, zeros(updates, [1, *sizes(updates)[1:]])])
    longer = concat(0, [x, zeros(x, [1, *sizes(x)[1:]])])
    return slice_axis(_coreai.scatter_nd(longer, indices, updates), 0, 0, count)


@vocabulary
def scatter_along_axis(
    x: Value, indices: Value, updates: Value, axis: int, mode: str = "update"
) -> Value:
    """Return `x` with elements replaced, or combined with updates, along an axis.

    Args:
        x: a tensor of floats, integers or booleans.
        indices: an int32 tensor; indices beyond the axis are not detected.
        updates: a tensor of the element type of `x` in the sizes of `indices`.
        axis: the axis.
        mode: `"update"`, `"add"`, `"sub"`, `"mul"`, `"div"`, `"min"` or `"max"`.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(
        ...     lambda x, i, u: dialect.scatter_along_axis(x, i, u, 0, "add"),
        ...     [1.0, 2.0, 3.0],
        ...     [2, 2],
        ...     [10.0, 20.0],
        ... )
        tensor([ 1.,  2., 33.])
    """
    check_choice("scatter_along_axis", "mode", mode, _SCATTER_MODES)
    attribute = Attribute.parse(f"#coreai.scatter_mode<{mode}>")
    longer, indices, updates = with_extra_entry(x, indices, updates, axis)
    operands = longer, indices, updates, i32(axis)
    result = gen.ScatterAlongAxisOp(longer.type, *operands, scatter_mode=attribute).result
    return result if longer is x else slice_axis(result, axis, 0, size(x, axis))


def with_extra_entry(
    x: Value, indices: Value, updates: Value, axis: int
) -> tuple[Value, Value, Value]:
    """Return the operands of a scatter with one more entry, for a place added behind the others.

    The process aborts on a scatter without entries: `y.index_add(0, i, x[i])` with an empty `i`
    (coreai-core 1.0.0b2). The extra entry needs a place: an index beyond the axis is written to
    memory all the same, and `torch.unique` of 80 numbers ended in an abort.
    """
    if not Build.current().zero_sizes.along(indices, [axis]):
        return x, indices, updates
    at, behind = shapes.i32(axis), shapes.number(shapes.size(x, axis))
    added = []
    for value, filler in ((x, None), (indices, behind), (updates, None)):
        one = [1 if i == axis else n for i, n in enumerate(shapes.sizes(value))]
        zero = Build.current().number(0, types.dtype_of(value.type))
        row = shapes.broadcast_to(zero if filler is None else filler, one)
        added.append(gen.ConcatOp(at, [value, row]).result)
    longer, places, entries = added
    return longer, places, entries
