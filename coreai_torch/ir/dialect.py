"""Constructors of dialect ops for lowerings, with guards against known failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Attribute, RankedTensorType, Type, Value

from . import padding as padding_
from . import shapes, types
from .broadcasting import broadcast_operands, or_identity
from .build import SMALL, Build
from .casting import cast, dtype, is_bool, is_complex, is_float, is_integer, raw_cast, trunc
from .reassociation import block_reassociation
from .scatter import with_extra_entry
from .shapes import Dim, broadcast_to, i32, refine, reshape, size, sizes, u32
from .spatial import conv, conv_transpose, interpolate, max_pool, sum_pool

__all__ = [
    "SMALL",
    "Attribute",
    "Dim",
    "RankedTensorType",
    "Type",
    "Value",
    "broadcast_to",
    "cast",
    "conv",
    "conv_transpose",
    "dtype",
    "i32",
    "interpolate",
    "is_bool",
    "is_complex",
    "is_float",
    "is_integer",
    "max_pool",
    "raw_cast",
    "refine",
    "reshape",
    "size",
    "sizes",
    "sum_pool",
    "trunc",
    "u32",
]

Unary: TypeAlias = Callable[[Value], Value]
Binary: TypeAlias = Callable[[Value, Value], Value]


def _unary(op: type) -> Unary:
    return lambda x: op(x).result


def _binary(op: type) -> Binary:
    return lambda x, y: op(*broadcast_operands(x, y)).result


def _chained(op: Any) -> Binary:
    """Return a constructor for sums or products that blocks wrong reassociation."""
    name = op.OPERATION_NAME
    return lambda x, y: op(*broadcast_operands(*block_reassociation(name, x, y))).result


# Two operands of one element type; sizes broadcast. Booleans have separate ops: adding or
# multiplying them with broadcasting fails at run time, comparing them fails when saving.
add = _chained(gen.BroadcastingAdd)
sub = _chained(gen.BroadcastingSub)
mul = _chained(gen.BroadcastingMul)
div = _chained(gen.BroadcastingDivide)
floor_divide = _binary(gen.BroadcastingFloorDivide)
modulo = _binary(gen.BroadcastingModulo)  # C's fmod: the sign of the dividend
maximum = _binary(gen.BroadcastingMaximum)
minimum = _binary(gen.BroadcastingMinimum)
equal = _binary(gen.BroadcastingEqual)
not_equal = _binary(gen.BroadcastingNotEqual)
greater = _binary(gen.BroadcastingGreater)
logical_and = _binary(gen.BroadcastingAnd)
logical_or = _binary(gen.BroadcastingOr)
logical_xor = _binary(gen.BroadcastingXor)
bitwise_and = _binary(gen.BroadcastingBitwiseAnd)
bitwise_or = _binary(gen.BroadcastingBitwiseOr)
bitwise_xor = _binary(gen.BroadcastingBitwiseXor)


def matmul(x: Value, y: Value) -> Value:
    """Multiply matrices; batches broadcast, and an empty inner axis gives zeros.

    The run time leaves the result of `[s0, 0] @ [0, 5]` unwritten.
    """
    if x.type.rank > 1 and x.type.shape[-1] == 0:
        x, y = (zeros(v, [d if d != 0 else 1 for d in sizes(v)]) for v in (x, y))
    return gen.BroadcastingBatchMatmul(x, y).result


abs_ = _unary(gen.AbsOp)
acos = _unary(gen.AcosOp)
acosh = _unary(gen.AcoshOp)
asin = _unary(gen.AsinOp)
asinh = _unary(gen.AsinhOp)
atan = _unary(gen.AtanOp)
atanh = _unary(gen.AtanhOp)
cos = _unary(gen.CosOp)
cosh = _unary(gen.CoshOp)
erf = _unary(gen.ErfOp)
exp = _unary(gen.ExpOp)
imaginary_part = _unary(gen.ImaginaryPartOp)  # complex operands only: others abort the process
log = _unary(gen.LogOp)
logical_not = _unary(gen.NotOp)
non_zero = _unary(gen.NonZeroOp)  # si32 [count, rank]
real_part = _unary(gen.RealPartOp)  # complex operands only: others abort the process
round_ = _unary(gen.RoundOp)  # ties to even
rsqrt = _unary(gen.RsqrtOp)
sigmoid = _unary(gen.SigmoidOp)
silu = _unary(gen.SiluOp)
sin = _unary(gen.SinOp)
sinh = _unary(gen.SinhOp)
sqrt = _unary(gen.SqrtOp)
tan = _unary(gen.TanOp)
tanh = _unary(gen.TanhOp)


def may_be_empty(x: Value) -> bool:
    """Return whether a value may have no elements at run time."""
    return Build.current().zero_sizes.of(x)


def relu(x: Value) -> Value:
    """Return `max(x, 0)`.

    ReLUOp broadcasts a scalar zero and crashes on an empty operand (coreai-core 1.0.0b2).
    """
    if Build.current().zero_sizes.of(x):
        return maximum(x, like(x, 0))
    return gen.ReLUOp(x).result


def where(condition: Value, a: Value, b: Value) -> Value:
    return gen.BroadcastingWhere(*broadcast_operands(condition, a, b)).result


def pow_(x: Value, y: Value) -> Value:
    """Return `x ** y`; integers wrap."""
    if is_float(x):
        return gen.BroadcastingPow(*broadcast_operands(x, y)).result
    # BroadcastingPow rejects complex numbers, computes integers in double, and aborts if 2 ** 7
    # does not fit si8. PowOp on operands of equal sizes is safe.
    return gen.PowOp(*broadcast(x, y)).result


def broadcast(x: Value, y: Value) -> tuple[Value, Value]:
    """Expand both operands to their common sizes."""
    if x.type == y.type and types.DYNAMIC not in x.type.shape:
        return x, y
    always = constant(True, torch.bool)
    return where(always, x, y), where(always, y, x)


def less(x: Value, y: Value) -> Value:
    return greater(y, x)


def neg(x: Value) -> Value:
    """Return `-x`; a subtraction from zero would give 0.0 for 0.0, not -0.0."""
    return mul(x, like(x, -1)) if is_float(x) else sub(like(x, 0), x)


def wide(x: Value) -> Value:
    """Cast narrow floats to float32, in which torch computes before it rounds."""
    return cast(x, torch.float32) if dtype(x) in (torch.float16, torch.bfloat16) else x


def known_number(x: Value) -> int | float | None:
    """Return the number of a splat constant, else None."""
    is_constant = getattr(x.owner, "name", None) == "coreai.constant"
    if not is_constant or is_bool(x) or is_complex(x):
        return None
    stored = x.owner.attributes["value"]
    if not getattr(stored, "is_splat", False):
        return None
    number: int | float = stored.get_splat_value().value
    return number


def constant(value: Any, dtype: torch.dtype) -> Value:
    """Return a number, or a flat list of numbers, as a constant of a (narrowed) torch dtype."""
    return Build.current().number(value, types.narrow(dtype))


def tensor_constant(tensor: torch.Tensor, name: str = "table") -> Value:
    """Return a tensor as a constant; equal tensors share it."""
    return Build.current().tensor(tensor, name)


def like(x: Value, number: Any) -> Value:
    """Return a rank-0 value of the element type of `x`; a run-time number is cast."""
    return cast(number, dtype(x)) if isinstance(number, Value) else constant(number, dtype(x))


def zeros(x: Value, dims: Sequence[Dim]) -> Value:
    """Return zeros of the element type of `x` in the given sizes."""
    return padding_.filled(like(x, 0), dims)


def create_complex(real: Value, imaginary: Value) -> Value:
    """Return a complex64 from two f32 values of one shape; other operands abort the process."""
    return gen.CreateComplexOp(cast(real, torch.float32), cast(imaginary, torch.float32)).result


def gelu(x: Value, approximate: str) -> Value:
    return _coreai.gelu(x, approximate=approximate)


def transpose(x: Value, permutation: Sequence[int]) -> Value:
    if list(permutation) == list(range(x.type.rank)):
        return x
    constant = Build.current().changed(x, lambda tensor: tensor.permute(*permutation).contiguous())
    if constant is not None:
        return constant
    return gen.TransposeOp(x, u32(list(permutation))).result


def expand_dims(x: Value, axes: Sequence[int]) -> Value:
    """Insert axes of size one at these positions of the result."""
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


def shrink_dims(x: Value, axes: Sequence[int]) -> Value:
    """Drop axes of size one, also if their type is dynamic."""
    if not axes:
        return x
    kept = [d for i, d in enumerate(sizes(x)) if i not in axes] if _hides_one(x, axes) else None
    return reshape(x, kept) if kept is not None else gen.ShrinkDimsOp(x, i32(list(axes))).result


def _hides_one(x: Value, axes: Sequence[int]) -> bool:
    return any(x.type.shape[a] != 1 for a in axes)


def sizes_of_type(x: Value) -> tuple[int, ...]:
    """Return the sizes of the type, with the marker of the dialect for dynamic ones."""
    return tuple(x.type.shape)


def concat(axis: int, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else gen.ConcatOp(i32(axis), list(values)).result


def slice_(
    x: Value, starts: Sequence[Dim], ends: Sequence[Dim], strides: Sequence[Dim] | None = None
) -> Value:
    """Slice `x` with one start and end per axis, with the semantics of Python.

    Negative positions count from the end and all are clamped, at run time too. Strides are
    positive.
    """
    step = strides if strides is not None else [1] * x.type.rank
    kept = [_extent(*bounds) for bounds in zip(x.type.shape, starts, ends, step, strict=True)]
    return gen.SliceOp(
        x,
        shapes.vector(starts),
        shapes.vector(ends),
        shapes.vector(step),
        results=[types.tensor(kept, x.type.element_type)],
    ).result


def _extent(extent: int, start: Dim, end: Dim, step: Dim) -> int:
    """Return the size of a sliced axis; SliceOp makes all axes dynamic for one dynamic bound."""
    if extent == types.DYNAMIC or not shapes.is_static((start, end, step)):
        return types.DYNAMIC
    return len(range(extent)[start:end:step])


def slice_axis(x: Value, axis: int, start: Dim, end: Dim, stride: Dim = 1) -> Value:
    """Slice along one axis."""
    starts: list[Dim] = [0] * x.type.rank
    ends: list[Dim] = list(whole(x))
    strides: list[Dim] = [1] * x.type.rank
    starts[axis], ends[axis], strides[axis] = start, end, stride
    return slice_(x, starts, ends, strides)


def whole(x: Value) -> tuple[int, ...]:
    """Return the ends of a slice that takes all of `x`; dynamic sizes rely on clamping."""
    return tuple(shapes.FAR if d == types.DYNAMIC else int(d) for d in x.type.shape)


def slice_update(
    x: Value, update: Value, starts: Sequence[Dim], ends: Sequence[Dim], strides: Sequence[Dim]
) -> Value:
    """Return `x` with a slice replaced by `update`."""
    return gen.SliceUpdateOp(
        x, shapes.vector(starts), shapes.vector(ends), shapes.vector(strides), update
    ).result


def reverse(x: Value, axes: Sequence[int]) -> Value:
    return gen.ReverseOp(x, i32(list(axes))).result if axes else x


def tile(x: Value, repeats: Sequence[Dim]) -> Value:
    return gen.TileOp(x, shapes.vector(repeats, torch.uint32)).result


def pad(x: Value, padding: padding_.Counts, value: Value | None = None) -> Value:
    """Pad each axis before and after with a number; counts are not negative."""
    if padding_.is_nothing(padding) or not padding_.can_copy(x, padding):
        return pad_op(x, padding, value)
    return padding_.copy_into_filled(x, padding, like(x, 0) if value is None else value)


def pad_op(
    x: Value, padding: padding_.Counts, value: Value | None = None, mode: str = "constant"
) -> Value:
    """Pad by the dialect's op, in a mode: constant, reflect, replicate or circular.

    A convolution or pool has no padding in the dialect, so a compiler for a device can only find
    it as this op before the window op.
    """
    if padding_.is_nothing(padding):
        return x
    flat = [count for pair in padding for count in pair]
    filler = like(x, 0) if value is None else value
    counts = shapes.vector(flat, torch.uint32)
    axis = int(padding_.is_nothing(padding[:1]))  # whether axis 0 is not padded
    return _with_extra_row(x, axis, lambda rows: _coreai.pad(rows, counts, filler, mode))


def range_(start: Value, stop: Value, step: Value) -> Value:
    """`arange` of one element type; a step of zero aborts the process."""
    return gen.RangeOp(start, stop, step).result


def _reduction(op: type, identity: float | bool) -> Callable[[Value, Sequence[int]], Value]:
    """Return a reduction; `identity` is the result for empty axes."""

    def reduce(x: Value, axes: Sequence[int]) -> Value:
        # An empty list of axes reduces nothing; the dialect returns garbage for it.
        if not axes:
            return x
        if any(x.type.shape[axis] == 0 for axis in axes):
            reduced = {axis % x.type.rank for axis in axes}
            kept = [1 if axis in reduced else d for axis, d in enumerate(sizes(x))]
            return broadcast_to(like(x, identity), kept)
        return or_identity(op(x, i32(list(axes))).result, x, axes, identity)

    return reduce


# The reduced axes stay, at size one.
reduce_max = _reduction(gen.ReduceMaxOp, -math.inf)
reduce_mean = _reduction(gen.ReduceMeanOp, math.nan)
reduce_min = _reduction(gen.ReduceMinOp, math.inf)
reduce_product = _reduction(gen.ReduceProductOp, 1)
reduce_sum = _reduction(gen.ReduceSumOp, 0)
all_ = _reduction(gen.AllOp, True)
any_ = _reduction(gen.AnyOp, False)


def any_one(x: Value) -> Value:
    """Return whether any boolean is set, as the rank-0 condition of a loop."""
    axes = list(range(x.type.rank))
    return shrink_dims(any_(x, axes), axes)


def argmax(x: Value, axis: int) -> Value:
    """Return the index of the first maximum along an axis (si32, axis kept); NaN is ignored."""
    found = _with_extra_row(x, axis, lambda rows: gen.ArgmaxOp(rows, i32(axis)).result)
    return raw_cast(found, torch.int32)


def _with_extra_row(x: Value, axis: int, op: Unary) -> Value:
    """Apply `op` along an axis; it crashes without rows, so a row of zeros is added and cut off."""
    if not axis or not Build.current().zero_sizes.along(x, [0]):
        return op(x)
    longer = concat(0, [x, zeros(x, [1, *sizes(x)[1:]])])
    return slice_axis(op(longer), 0, 0, size(x, 0))


def softmax(x: Value, axis: int) -> Value:
    return gen.SoftmaxOp(x, i32(axis)).result


def scan(x: Value, axis: int, combiner: str) -> Value:
    """Return the cumulative `sum`, `product`, `min` or `max` along an axis."""
    at, back = u32(axis), constant(False, torch.bool)
    return _with_extra_row(
        _distinct_operand(x), axis, lambda y: _coreai.scan(y, at, back, combiner)
    )


def _distinct_operand(x: Value) -> Value:
    """Return the same value through an op that differs from that of every earlier scan.

    The run time drops one of two equal scans over dynamic sizes: `x.cumsum(0) + x, x.cumsum(0) * x`
    fails with "Expected operands to be tensors" (coreai-core 1.0.0b2). The slices take all of `x`,
    with different ends.
    """
    unknown = [axis for axis, size in enumerate(x.type.shape) if size == types.DYNAMIC]
    nth = next(Build.current().open_scans) if unknown else 0
    return slice_axis(x, unknown[0], 0, shapes.FAR - nth) if nth else x


def sort(x: Value, axis: int, descending: bool) -> Value:
    flags = constant(descending, torch.bool), constant(True, torch.bool)
    return gen.SortOp(x.type, x, i32(axis), *flags).result


def argsort(x: Value, axis: int, descending: bool) -> Value:
    """Sort stably; si32. Descending puts NaN last; torch puts it first."""
    flags = constant(descending, torch.bool), constant(True, torch.bool)
    return _with_extra_row(x, axis, lambda rows: gen.ArgSortOp(rows, i32(axis), *flags).result)


def gather_along_axis(x: Value, indices: Value, axis: int) -> Value:
    """Gather; indices (si32, not negative) must match `x` in size on all other axes."""
    return gen.GatherAlongAxisOp(x, indices, i32(axis)).result


def gather_nd(x: Value, indices: Value) -> Value:
    """Gather; the last axis of `indices` (si32, not negative) addresses the leading axes of `x`."""
    return gen.GatherNdOp(x, indices).result


def scatter_nd(x: Value, indices: Value, updates: Value) -> Value:
    """Return `x` with the addressed entries replaced; the last of duplicates wins."""
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


def scatter_along_axis(
    x: Value, indices: Value, updates: Value, axis: int, mode: str = "update"
) -> Value:
    """Scatter; modes: update, add, sub, mul, div, min, max. Indices are not range-checked."""
    attribute = Attribute.parse(f"#coreai.scatter_mode<{mode}>")
    longer, indices, updates = with_extra_entry(x, indices, updates, axis)
    operands = longer, indices, updates, i32(axis)
    result = gen.ScatterAlongAxisOp(longer.type, *operands, scatter_mode=attribute).result
    return result if longer is x else slice_axis(result, axis, 0, size(x, axis))
