"""Ops that move, repeat or select elements without computing: slices, axes, copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Block, RankedTensorType, Value

from . import shapes, types
from .build import Build
from .operands import vocabulary
from .shapes import Dim, i32, reshape, sizes, sizes_of_type, u32


@vocabulary
def transpose(x: Value, permutation: Sequence[int]) -> Value:
    """Reorder the axes.

    Args:
        x: a tensor of any element type.
        permutation: for each axis of the result, the axis of `x` that it is.

    Returns:
        A tensor of the element type of `x`, with its sizes reordered.

    Examples:
        >>> evaluate(lambda x: dialect.transpose(x, [1, 0]), [[1.0, 2.0, 3.0]])
        tensor([[1.],
                [2.],
                [3.]])
    """
    if list(permutation) == list(range(x.type.rank)):
        return x
    constant = Build.current().changed(x, lambda tensor: tensor.permute(*permutation).contiguous())
    if constant is not None:
        return constant
    return gen.TransposeOp(x, u32(list(permutation))).result


@vocabulary
def expand_dims(x: Value, axes: Sequence[int]) -> Value:
    """Insert axes of size one.

    Args:
        x: a tensor of any element type.
        axes: the positions of the new axes in the result, not negative.

    Returns:
        A tensor of the element type of `x` with the new axes.

    Examples:
        >>> evaluate(lambda x: dialect.expand_dims(x, [0, 2]), [1.0, 2.0]).shape
        torch.Size([1, 2, 1])
    """
    if not axes:
        return x
    dims = list(sizes_of_type(x))
    for axis in sorted(axes):
        dims.insert(axis, 1)
    constant = Build.current().changed(x, lambda tensor: tensor.reshape(dims))
    if constant is not None:
        return constant
    type_ = RankedTensorType.get(dims, x.type.element_type)
    return gen.ExpandDimsOp(x, i32(list(axes)), results=[type_]).result


@vocabulary
def shrink_dims(x: Value, axes: Sequence[int]) -> Value:
    """Drop axes of size one, also if their type is dynamic.

    Args:
        x: a tensor of any element type.
        axes: the axes to drop, not negative.

    Returns:
        A tensor of the element type of `x` without these axes.

    Examples:
        >>> evaluate(lambda x: dialect.shrink_dims(x, [0]), [[1.0, 2.0]])
        tensor([1., 2.])
    """
    if not axes:
        return x
    kept = [d for i, d in enumerate(sizes(x)) if i not in axes] if _hides_one(x, axes) else None
    return reshape(x, kept) if kept is not None else gen.ShrinkDimsOp(x, i32(list(axes))).result


def _hides_one(x: Value, axes: Sequence[int]) -> bool:
    return any(x.type.shape[a] != 1 for a in axes)


@vocabulary
def concat(axis: int, values: Sequence[Value]) -> Value:
    """Join tensors along an axis.

    Args:
        axis: the axis along which the sizes may differ.
        values: tensors of one element type, at least one.

    Returns:
        A tensor of the element type of the operands.

    Examples:
        >>> evaluate(lambda x, y: dialect.concat(0, [x, y]), [1.0, 2.0], [3.0])
        tensor([1., 2., 3.])
    """
    return values[0] if len(values) == 1 else gen.ConcatOp(i32(axis), list(values)).result


@vocabulary
def slice_(
    x: Value, starts: Sequence[Dim], ends: Sequence[Dim], strides: Sequence[Dim] | None = None
) -> Value:
    """Select a range of each axis, as `x[start:end:stride, ...]` in Python.

    `slice` is another name of this function. Negative positions count from the end and all are
    clamped, at run time too.

    Args:
        x: a tensor of any element type.
        starts: one start for each axis, as numbers or rank-0 tensors.
        ends: one end for each axis.
        strides: one positive stride for each axis; all 1 by default.

    Returns:
        A tensor of the element type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.slice(x, [1], [4], [2]), [0.0, 1.0, 2.0, 3.0])
        tensor([1., 3.])
    """
    step = strides if strides is not None else [1] * x.type.rank
    x, starts, ends, step = _of_whole(x, starts, ends, step)
    kept = [_extent(*bounds) for bounds in zip(x.type.shape, starts, ends, step, strict=True)]
    return gen.SliceOp(
        x,
        shapes.vector(starts),
        shapes.vector(ends),
        shapes.vector(step),
        results=[types.tensor(kept, x.type.element_type)],
    ).result


def _of_whole(
    x: Value, starts: Sequence[Dim], ends: Sequence[Dim], strides: Sequence[Dim]
) -> tuple[Value, Sequence[Dim], Sequence[Dim], Sequence[Dim]]:
    """Return a slice of a slice as one slice of its operand: `x[1:, :8]` is two in a graph."""
    given = x, starts, ends, strides
    if isinstance(x.owner, Block) or x.owner.name != "coreai.slice":
        return given
    source, *bounds = x.owner.operands
    known = [_numbers(bound) for bound in bounds]
    dims = [*starts, *ends, *strides]
    if any(k is None for k in known) or not all(type(d) is int for d in dims):
        return given
    outer = zip(source.type.shape, *(k for k in known if k is not None), strict=True)
    inner = zip(x.type.shape, starts, ends, strides, strict=True)
    axes = [_composed(a, b) for a, b in zip(outer, inner, strict=True)]
    found = [axis for axis in axes if axis is not None]
    if len(found) < len(axes):
        return given
    return source, [a[0] for a in found], [a[1] for a in found], [a[2] for a in found]


def _numbers(bound: Value) -> list[int] | None:
    """Return the numbers of a constant vector."""
    if isinstance(bound.owner, Block) or bound.owner.name != "coreai.constant":
        return None
    content = Build.current().content(bound)
    return None if content is None else [int(n) for n in content.tolist()]


def _composed(outer: Any, inner: Any) -> tuple[int, int, int] | None:
    """Return start, end and stride of `inner`, which counts the positions of `outer`."""
    if _is_whole(*inner):
        return (outer[1], outer[2], outer[3])
    if _is_whole(*outer):
        return (inner[1], inner[2], inner[3])
    if outer[0] == types.DYNAMIC:
        return None
    positions = range(outer[0])[slice(*outer[1:])][slice(*inner[1:])]
    if not len(positions) or positions.step < 1:
        return None
    return (positions[0], positions[-1] + 1, positions.step)


def _is_whole(extent: int, start: int, end: int, stride: int) -> bool:
    last = shapes.FAR if extent == types.DYNAMIC else extent
    return start == 0 and end >= last and stride == 1


def _extent(extent: int, start: Dim, end: Dim, step: Dim) -> int:
    """Return the size of a sliced axis; SliceOp makes all axes dynamic for one dynamic bound."""
    if extent == types.DYNAMIC or not shapes.is_static((start, end, step)):
        return types.DYNAMIC
    return len(range(extent)[start:end:step])


@vocabulary
def slice_axis(x: Value, axis: int, start: Dim, end: Dim, stride: Dim = 1) -> Value:
    """Select a range of one axis, as `x[..., start:end:stride, ...]` in Python.

    Args:
        x: a tensor of any element type.
        axis: the axis.
        start: the first position, a number or a rank-0 tensor; negative ones count from the end.
        end: the position behind the last one.
        stride: the distance between positions, positive.

    Returns:
        A tensor of the element type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.slice_axis(x, 1, 0, -1), [[1.0, 2.0, 3.0]])
        tensor([[1., 2.]])
    """
    starts: list[Dim] = [0] * x.type.rank
    ends: list[Dim] = list(whole(x))
    strides: list[Dim] = [1] * x.type.rank
    starts[axis], ends[axis], strides[axis] = start, end, stride
    return slice_(x, starts, ends, strides)


@vocabulary
def split(x: Value, axis: int, extents: Sequence[int]) -> list[Value]:
    """Split an axis of static size into ranges, in one op.

    Args:
        x: a tensor of any element type.
        axis: the axis, not negative.
        extents: the size of each range; their sum is the size of the axis.

    Returns:
        One tensor of the element type of `x` for each range.

    Examples:
        >>> evaluate(lambda x: dialect.split(x, 0, [1, 2])[1], [1.0, 2.0, 3.0])
        tensor([2., 3.])
    """
    if sum(extents) != x.type.shape[axis]:
        raise ValueError(f"split: {list(extents)} of an axis of size {x.type.shape[axis]}")
    if len(extents) == 1:
        return [x]
    return list(gen.SplitOp(x, u32(list(extents)), i32(axis)).results)


@vocabulary
def whole(x: Value) -> tuple[int, ...]:
    """Return the ends of a slice that selects all of `x`.

    Args:
        x: a tensor of any element type.

    Returns:
        A number for each axis: its size, or a large number for a dynamic size, which is clamped.

    Examples:
        >>> evaluate(dialect.whole, [[1.0, 2.0, 3.0]])
        (1, 3)
    """
    return tuple(shapes.FAR if d == types.DYNAMIC else int(d) for d in x.type.shape)


@vocabulary
def slice_update(
    x: Value, update: Value, starts: Sequence[Dim], ends: Sequence[Dim], strides: Sequence[Dim]
) -> Value:
    """Return `x` with a slice replaced by `update`.

    Args:
        x: a tensor of any element type.
        update: a tensor of the element type of `x` in the sizes of the slice.
        starts: one start for each axis, as numbers or rank-0 tensors.
        ends: one end for each axis.
        strides: one positive stride for each axis.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(
        ...     lambda x, y: dialect.slice_update(x, y, [1], [3], [1]), [1.0, 2.0, 3.0], [8.0, 9.0]
        ... )
        tensor([1., 8., 9.])
    """
    return gen.SliceUpdateOp(
        x, shapes.vector(starts), shapes.vector(ends), shapes.vector(strides), update
    ).result


@vocabulary
def reverse(x: Value, axes: Sequence[int]) -> Value:
    """Reverse the order of the elements along axes.

    Args:
        x: a tensor of any element type.
        axes: the axes; an empty list returns `x`.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.reverse(x, [0]), [1.0, 2.0, 3.0])
        tensor([3., 2., 1.])
    """
    return gen.ReverseOp(x, i32(list(axes))).result if axes else x


@vocabulary
def tile(x: Value, repeats: Sequence[Dim]) -> Value:
    """Repeat the tensor along each axis.

    Args:
        x: a tensor of floats, integers, booleans or complex numbers.
        repeats: one count for each axis, as numbers or rank-0 tensors.

    Returns:
        A tensor of the element type of `x`, each size multiplied by its count.

    Examples:
        >>> evaluate(lambda x: dialect.tile(x, [2]), [1.0, 2.0])
        tensor([1., 2., 1., 2.])
    """
    return gen.TileOp(x, shapes.vector(repeats, torch.uint32)).result
