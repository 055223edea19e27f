"""Sizes as numbers or values, so that one lowering handles static and dynamic shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Block, RankedTensorType, Value

from . import types
from .build import Build
from .casting import raw_cast
from .operands import vocabulary

# A size: a plain number, or a rank-0 si32 value that is known only at run time.
Dim: TypeAlias = "int | Value"

# An end beyond every axis: the runtime clamps the ends of slices. `optimize` merges two nested
# writes and adds the outer start to the inner end in 32 bits: with 2**31 - 1 it failed on
# `x[1:, 0] = y`, with the end -2**31 (coreai-core 1.0.0b2).
FAR = 2**31 - 2**24


@vocabulary
def i32(value: int | Sequence[int]) -> Value:
    """Return an int32 constant, for axes, positions and signed sizes.

    Args:
        value: an integer, or a list of integers.

    Returns:
        A rank-0 int32 tensor, or a vector for a list.

    Examples:
        >>> evaluate(lambda: dialect.i32([1, -2]))
        tensor([ 1, -2], dtype=torch.int32)
    """
    build = Build.current()
    emit = build.constant if type(value) is int else build.number
    return emit(value, torch.int32)


@vocabulary
def u32(value: int | Sequence[int]) -> Value:
    """Return a uint32 constant, for windows, counts and permutations.

    Args:
        value: an integer, or a list of integers, not negative.

    Returns:
        A rank-0 uint32 tensor, or a vector for a list.

    Examples:
        >>> evaluate(lambda: dialect.u32(3)).dtype
        torch.uint32
    """
    return Build.current().number(value, torch.uint32)


def is_static(dims: Sequence[Dim]) -> bool:
    return all(isinstance(d, int) for d in dims)


@vocabulary
def size(x: Value, axis: int) -> Dim:
    """Return the size of one axis.

    Args:
        x: a tensor of any element type.
        axis: the axis.

    Returns:
        A Python number, or a rank-0 int32 tensor if the size is dynamic.

    Examples:
        >>> evaluate(lambda x: dialect.size(x, 1), [[1.0, 2.0, 3.0]])
        3
    """
    extent = x.type.shape[axis]
    return int(extent) if extent != types.DYNAMIC else _runtime_sizes(x)(axis)


@vocabulary
def sizes(x: Value) -> tuple[Dim, ...]:
    """Return the sizes of all axes.

    Args:
        x: a tensor of any element type.

    Returns:
        For each axis a Python number, or a rank-0 int32 tensor if the size is dynamic.

    Examples:
        >>> evaluate(dialect.sizes, [[1.0, 2.0, 3.0]])
        (1, 3)
    """
    ask: Callable[[int], Value] | None = None
    found: list[Dim] = []
    for axis, extent in enumerate(x.type.shape):
        if extent != types.DYNAMIC:
            found.append(int(extent))
            continue
        ask = ask or _runtime_sizes(x)
        found.append(ask(axis))
    return tuple(found)


def _runtime_sizes(x: Value) -> Callable[[int], Value]:
    shape = raw_cast(gen.GetShapeOp(x).result, torch.int32)

    def ask(axis: int) -> Value:
        one = gen.SliceOp(shape, i32([axis]), i32([axis + 1]), i32([1])).result
        return scalar(one)

    return ask


def scalar(x: Value) -> Value:
    """Reshape a one-element value to rank 0."""
    type_ = RankedTensorType.get([], x.type.element_type)
    return x if x.type.rank == 0 else _reshape_to(x, _empty_shape(), type_)


def _empty_shape() -> Value:
    return Build.current().tensor(torch.empty(0, dtype=torch.int32), "empty")


def _reshape_to(x: Value, shape: Value, type_: RankedTensorType) -> Value:
    return gen.ReshapeOp(x, shape, results=[type_]).result


def as_vector(dim: Value) -> Value:
    """Reshape a rank-0 value to a vector of one element."""
    return _reshape_to(dim, i32([1]), RankedTensorType.get([1], dim.type.element_type))


def counted(dim: Value) -> Value:
    """Return a run-time size as a vector of one element, to compute with.

    It goes through a range, so that the runtime needs its value for a shape, too. Where it does
    not, two like sums of sizes leave the second one without a type: `x[i] = u, y[j] = v` with open
    sizes stops with "coreai.add: Expected operands to be tensors".
    """
    one = gen.RangeOp(dim, _as_value(add(dim, 1)), i32(1)).result
    return refine(one, RankedTensorType.get([1], one.type.element_type))


def number(dim: Dim) -> Value:
    """Return a size as a value to compute with."""
    return i32(dim) if isinstance(dim, int) else scalar(counted(dim))


def vector(dims: Sequence[Dim], dtype: torch.dtype = torch.int32) -> Value:
    """Concatenate sizes to a vector of the given index type."""
    if is_static(dims):
        return Build.current().number(list(dims), dtype) if dims else _empty_shape()
    parts: list[Value] = []
    run: list[int] = []
    for dim in dims:
        if isinstance(dim, int):
            run.append(dim)
            continue
        if run:
            parts.append(i32(run))
            run = []
        parts.append(as_vector(dim))
    if run:
        parts.append(i32(run))
    joined = parts[0] if len(parts) == 1 else gen.ConcatOp(i32(0), parts).result
    return joined if dtype == torch.int32 else raw_cast(joined, dtype)


def tensor_type(dims: Sequence[Dim], like: Value) -> RankedTensorType:
    """Return the type of a tensor with these sizes and the element type of `like`."""
    return types.tensor(dims, like.type.element_type)


@vocabulary
def sizes_of_type(x: Value) -> tuple[int, ...]:
    """Return the sizes of the type; no op is emitted.

    Args:
        x: a tensor of any element type.

    Returns:
        For each axis a Python number; a large negative one marks a dynamic size.

    Examples:
        >>> evaluate(dialect.sizes_of_type, [[1.0, 2.0, 3.0]])
        (1, 3)
    """
    return tuple(x.type.shape)


@vocabulary
def may_be_empty(x: Value) -> bool:
    """Return whether a tensor may have no elements at run time.

    Args:
        x: a tensor of any element type.

    Returns:
        A Python bool; False if the conversion assumes sizes of at least one.

    Examples:
        >>> evaluate(dialect.may_be_empty, [1.0])
        False
    """
    return Build.current().zero_sizes.of(x)


@vocabulary
def refine(x: Value, type_: RankedTensorType) -> Value:
    """Change the type to one with more, or fewer, static sizes.

    Args:
        x: a tensor of any element type.
        type_: the type, which must agree with the sizes at run time.

    Returns:
        A tensor of the type `type_`.

    Examples:
        >>> evaluate(lambda x: dialect.refine(x, x.type), [1.0])
        tensor([1.])
    """
    return x if x.type == type_ else gen.CastOp(type_, x).result


def with_static_sizes(x: Value, type_: RankedTensorType) -> Value:
    """Add the static sizes of a type to those of `x`; a static size never becomes dynamic.

    A size that is counted behind a cast from static to dynamic ends the process when the program
    is loaded (coreai-core 1.0.0b3).
    """
    pairs = zip(x.type.shape, type_.shape, strict=True)
    known = [b if a == types.DYNAMIC else a for a, b in pairs]
    return refine(x, type(type_).get(known, type_.element_type))


@vocabulary
def reshape(x: Value, dims: Sequence[Dim]) -> Value:
    """Give the elements other sizes, in the same order.

    Args:
        x: a tensor of any element type.
        dims: the sizes of the result, as numbers or rank-0 tensors; one may be -1.

    Returns:
        A tensor of the element type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.reshape(x, [2, -1]), [1.0, 2.0, 3.0, 4.0])
        tensor([[1., 2.],
                [3., 4.]])
    """
    dims = _completed(x, dims)
    type_ = tensor_type(dims, x)
    may_be_empty = Build.current().zero_sizes.possible
    if may_be_empty:
        dims = _without_inferred(x, dims)
    known = [d if isinstance(d, int) else -1 for d in dims]
    if x.type == type_ and -1 not in known:
        return x
    if -1 not in known:
        constant = Build.current().changed(x, lambda tensor: tensor.reshape(known))
        if constant is not None:
            return constant
    ones = _leading_ones(known)
    if ones > _leading_ones(x.type.shape) and -1 in known:
        # `optimize` moves a reshape that adds leading ones behind the broadcasting op that reads
        # it: [1, n] + [n, 1] became a reshaped [n] + [n, 1] of the sizes [1, n * n]
        # (coreai-core 1.0.0b2).
        inner = reshape(x, dims[ones:])
        return gen.ExpandDimsOp(inner, i32(list(range(ones))), results=[type_]).result
    # The runtime cannot infer a size of an empty tensor: "Input shape can not be empty".
    if known.count(-1) == 1 and 0 not in known and not may_be_empty:
        return _reshape_to(x, i32(known), type_)
    return _reshape_to(x, vector(dims), type_)


def _leading_ones(sizes: Sequence[int]) -> int:
    """Return how many sizes before the first other one are 1; 0 if all are."""
    return next((i for i, size in enumerate(sizes) if size != 1), 0)


def _completed(x: Value, dims: Sequence[Dim]) -> Sequence[Dim]:
    """Return the sizes with -1 replaced if the size of the tensor is static."""
    count = math.prod(x.type.shape) if types.DYNAMIC not in x.type.shape else 0
    if not count or -1 not in dims or not is_static(dims):
        return dims
    rest = count // -math.prod(dims)
    return [rest if d == -1 else d for d in dims]


def _without_inferred(x: Value, dims: Sequence[Dim]) -> Sequence[Dim]:
    """Return the sizes with -1 replaced: the runtime cannot infer a size of an empty tensor."""
    others = [d for d in dims if not (isinstance(d, int) and d == -1)]
    if len(others) == len(dims):
        return dims
    rest = floordiv(product(sizes(x)), maximum(product(others), 1))
    return [rest if isinstance(d, int) and d == -1 else d for d in dims]


@vocabulary
def broadcast_to(x: Value, dims: Sequence[Dim]) -> Value:
    """Repeat axes of size one, and add leading axes, to get these sizes.

    Args:
        x: a tensor of any element type.
        dims: the sizes of the result, as numbers or rank-0 tensors.

    Returns:
        A tensor of the element type of `x` in the sizes `dims`.

    Examples:
        >>> evaluate(lambda x: dialect.broadcast_to(x, [2, 3]), [[1.0], [2.0]])
        tensor([[1., 1., 1.],
                [2., 2., 2.]])
    """
    type_ = tensor_type(dims, x)
    if x.type == type_ and is_static(dims):
        return x
    return gen.BroadcastToOp(x, vector(dims, torch.uint32), results=[type_]).result


def is_constant(x: Value) -> bool:
    """Return whether a value is a constant of the program."""
    owner = x.owner
    return not isinstance(owner, Block) and owner.name == "coreai.constant"


def _arithmetic(static: Callable[[int, int], int], op: type) -> Callable[[Dim, Dim], Dim]:
    def apply(a: Dim, b: Dim) -> Dim:
        if isinstance(a, int) and isinstance(b, int):
            return static(a, b)
        return op(_as_value(a), _as_value(b)).result

    return apply


def _as_value(dim: Dim) -> Value:
    return i32(dim) if isinstance(dim, int) else dim


# Broadcasting ops, although both are scalars: the compiler combines the constants of
# `(n * 2) * [0, 1, 2]` into `n * [0, 2, 4]`, and gives the product of plain ops the type of `n`.
add = _arithmetic(lambda a, b: a + b, gen.BroadcastingAdd)
sub = _arithmetic(lambda a, b: a - b, gen.BroadcastingSub)
_times = _arithmetic(lambda a, b: a * b, gen.BroadcastingMul)
floordiv = _arithmetic(lambda a, b: a // b, gen.FloorDivideOp)
maximum = _arithmetic(max, gen.MaximumOp)
minimum = _arithmetic(min, gen.MinimumOp)


def mul(a: Dim, b: Dim) -> Dim:
    """Multiply sizes; a factor of 1 emits no op."""
    if isinstance(a, int) and a == 1:
        return b
    return a if isinstance(b, int) and b == 1 else _times(a, b)


def product(dims: Sequence[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    total: Dim = math.prod(d for d in dims if isinstance(d, int))
    for dim in dims:
        if not isinstance(dim, int):
            total = mul(total, dim)
    return total
