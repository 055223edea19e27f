"""Reductions along axes, and ops along one axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Value

from . import shapes, types
from .broadcasting import or_identity
from .build import Build
from .casting import raw_cast
from .literals import like, zeros
from .operands import check_choice, vocabulary
from .rearranging import concat, shrink_dims, slice_axis
from .shapes import broadcast_to, i32, size, sizes, u32


def _reduce(op: Any, identity: float | bool, x: Value, axes: Sequence[int]) -> Value:
    """Reduce axes, which stay at size one; `identity` is the result for empty axes."""
    # An empty list of axes reduces nothing; the dialect returns garbage for it.
    if not axes:
        return x
    if any(x.type.shape[axis] == 0 for axis in axes):
        reduced = {axis % x.type.rank for axis in axes}
        kept = [1 if axis in reduced else d for axis, d in enumerate(sizes(x))]
        return broadcast_to(like(x, identity), kept)
    return or_identity(op(x, i32(list(axes))).result, x, axes, identity)


@vocabulary
def reduce_max(x: Value, axes: Sequence[int]) -> Value:
    """Return the largest element along axes.

    An empty axis gives minus infinity.

    Takes floats or integers. The reduced axes have size one; an empty list of axes returns `x`.

    Examples:
        >>> evaluate(lambda x: dialect.reduce_max(x, [1]), [[1.0, 2.0], [3.0, 4.0]])
        tensor([[2.],
                [4.]])
    """
    return _reduce(gen.ReduceMaxOp, -math.inf, x, axes)


@vocabulary
def reduce_mean(x: Value, axes: Sequence[int]) -> Value:
    """Return the mean of the elements along axes.

    An empty axis gives NaN.

    Args:
        x: a tensor of floats.
        axes: the axes to reduce; an empty list returns `x`.

    Returns:
        A tensor of the element type of `x`; the reduced axes have size one.

    Examples:
        >>> evaluate(lambda x: dialect.reduce_mean(x, [1]), [[1.0, 2.0], [3.0, 4.0]])
        tensor([[1.5000],
                [3.5000]])
    """
    return _reduce(gen.ReduceMeanOp, math.nan, x, axes)


@vocabulary
def reduce_min(x: Value, axes: Sequence[int]) -> Value:
    """Return the smallest element along axes.

    An empty axis gives infinity.

    Takes floats or integers. The reduced axes have size one; an empty list of axes returns `x`.

    Examples:
        >>> evaluate(lambda x: dialect.reduce_min(x, [1]), [[1.0, 2.0], [3.0, 4.0]])
        tensor([[1.],
                [3.]])
    """
    return _reduce(gen.ReduceMinOp, math.inf, x, axes)


@vocabulary
def reduce_product(x: Value, axes: Sequence[int]) -> Value:
    """Return the product of the elements along axes.

    An empty axis gives one.

    Takes floats or integers. The reduced axes have size one; an empty list of axes returns `x`.

    Examples:
        >>> evaluate(lambda x: dialect.reduce_product(x, [1]), [[1.0, 2.0], [3.0, 4.0]])
        tensor([[ 2.],
                [12.]])
    """
    return _reduce(gen.ReduceProductOp, 1, x, axes)


@vocabulary
def reduce_sum(x: Value, axes: Sequence[int]) -> Value:
    """Return the sum of the elements along axes; integers wrap.

    An empty axis gives zero.

    Takes floats or integers. The reduced axes have size one; an empty list of axes returns `x`.

    Examples:
        >>> evaluate(lambda x: dialect.reduce_sum(x, [1]), [[1.0, 2.0], [3.0, 4.0]])
        tensor([[3.],
                [7.]])
    """
    return _reduce(gen.ReduceSumOp, 0, x, axes)


@vocabulary
def all_(x: Value, axes: Sequence[int]) -> Value:
    """Return whether all elements along axes are true.

    `all` is another name of this function. An empty axis gives True.

    Takes booleans. The reduced axes have size one; an empty list of axes returns `x`.

    Examples:
        >>> evaluate(lambda x: dialect.all(x, [1]), [[True, False], [True, True]])
        tensor([[False],
                [ True]])
    """
    return _reduce(gen.AllOp, True, x, axes)


@vocabulary
def any_(x: Value, axes: Sequence[int]) -> Value:
    """Return whether any element along axes is true.

    `any` is another name of this function. An empty axis gives False.

    Takes booleans. The reduced axes have size one; an empty list of axes returns `x`.

    Examples:
        >>> evaluate(lambda x: dialect.any(x, [1]), [[True, False], [False, False]])
        tensor([[ True],
                [False]])
    """
    return _reduce(gen.AnyOp, False, x, axes)


@vocabulary
def any_one(x: Value) -> Value:
    """Return whether any element is true, as the condition of a branch or loop.

    Args:
        x: a bool tensor.

    Returns:
        A rank-0 bool tensor.

    Examples:
        >>> evaluate(dialect.any_one, [[True, False], [False, False]])
        tensor(True)
    """
    axes = list(range(x.type.rank))
    return shrink_dims(any_(x, axes), axes)


@vocabulary
def argmax(x: Value, axis: int) -> Value:
    """Return the index of the first maximum along an axis; NaN is ignored.

    Args:
        x: a tensor of floats or integers.
        axis: the axis to search.

    Returns:
        An int32 tensor; the axis has size one.

    Examples:
        >>> evaluate(lambda x: dialect.argmax(x, 0), [1.0, 7.0, 3.0])
        tensor([1], dtype=torch.int32)
    """
    found = with_extra_row(x, axis, lambda rows: gen.ArgmaxOp(rows, i32(axis)).result)
    return raw_cast(found, torch.int32)


@vocabulary
def softmax(x: Value, axis: int) -> Value:
    """Return `exp(x) / sum(exp(x))` along an axis.

    Args:
        x: a tensor of floats.
        axis: the axis of the sum.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.softmax(x, 0), [0.0, 1.0])
        tensor([0.2689, 0.7311])
    """
    return gen.SoftmaxOp(x, i32(axis)).result


@vocabulary
def scan(x: Value, axis: int, combiner: str) -> Value:
    """Combine each element with all elements before it along an axis.

    Args:
        x: a tensor of floats or integers.
        axis: the axis to go along, not negative.
        combiner: `"sum"`, `"product"`, `"min"` or `"max"`.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.scan(x, 0, "sum"), [1.0, 2.0, 3.0])
        tensor([1., 3., 6.])
    """
    check_choice("scan", "combiner", combiner, ("sum", "product", "min", "max"))
    at, back = u32(axis), Build.current().number(False, torch.bool)
    distinct = _distinct_operand(x)
    return with_extra_row(distinct, axis, lambda y: _coreai.scan(y, at, back, combiner))


def with_extra_row(x: Value, axis: int, op: Callable[[Value], Value]) -> Value:
    """Apply `op` along an axis; it crashes without rows, so a row of zeros is added and cut off."""
    if not axis or not Build.current().zero_sizes.along(x, [0]):
        return op(x)
    longer = concat(0, [x, zeros(x, [1, *sizes(x)[1:]])])
    return slice_axis(op(longer), 0, 0, size(x, 0))


def _distinct_operand(x: Value) -> Value:
    """Return the same value through an op that differs from that of every earlier scan.

    The runtime drops one of two equal scans over dynamic sizes: `x.cumsum(0) + x, x.cumsum(0) * x`
    fails with "Expected operands to be tensors" (coreai-core 1.0.0b2). The slices take all of `x`,
    with different ends.
    """
    unknown = [axis for axis, size in enumerate(x.type.shape) if size == types.DYNAMIC]
    nth = next(Build.current().open_scans) if unknown else 0
    return slice_axis(x, unknown[0], 0, shapes.FAR - nth) if nth else x
