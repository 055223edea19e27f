"""Casts between element types with the semantics of torch."""

from __future__ import annotations

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import RankedTensorType, Type, Value

from . import types
from .broadcasting import broadcast_operands
from .build import Build
from .operands import vocabulary
from .removable import barrier, before_casts


def element(x: Value) -> Type:
    return x.type.element_type


def element_dtype(x: Value) -> torch.dtype:
    """Return the torch dtype of the elements, unchecked: `cast` asks for each node."""
    return types.dtype_of(x.type)


def in_dtype(x: Value, target: torch.dtype) -> Value:
    """Return `cast(x, target)`; skip the check of arguments where nothing is to be cast.

    The walker comes here twice per node: with `cast` alone a chain of 7,500 ops takes 10 % longer.
    """
    return x if element_dtype(x) is target else cast(x, target)


@vocabulary
def dtype(x: Value) -> torch.dtype:
    """Return the torch dtype of the elements.

    Args:
        x: a tensor of any element type.

    Returns:
        A torch dtype of at most 32 bits for each number.

    Examples:
        >>> evaluate(dialect.dtype, torch.ones(2, dtype=torch.int64))
        torch.int32
    """
    return element_dtype(x)


@vocabulary
def is_float(x: Value) -> bool:
    """Return whether the elements are floats.

    The result is a Python bool, known at conversion.

    Examples:
        >>> evaluate(dialect.is_float, [1.0])
        True
    """
    return bool(element_dtype(x).is_floating_point)


@vocabulary
def is_bool(x: Value) -> bool:
    """Return whether the elements are booleans.

    The result is a Python bool, known at conversion.

    Examples:
        >>> evaluate(dialect.is_bool, [True])
        True
    """
    return bool(element_dtype(x) == torch.bool)


@vocabulary
def is_complex(x: Value) -> bool:
    """Return whether the elements are complex numbers.

    The result is a Python bool, known at conversion.

    Examples:
        >>> evaluate(dialect.is_complex, [1 + 2j])
        True
    """
    return bool(element_dtype(x).is_complex)


@vocabulary
def is_integer(x: Value) -> bool:
    """Return whether the elements are integers; booleans are not.

    The result is a Python bool, known at conversion.

    Examples:
        >>> evaluate(dialect.is_integer, [1])
        True
    """
    return not (is_float(x) or is_bool(x) or is_complex(x))


def _with_element(x: Value, target: torch.dtype) -> RankedTensorType:
    return RankedTensorType.get(x.type.shape, types.element(target))


@vocabulary
def raw_cast(x: Value, target: torch.dtype) -> Value:
    """Convert the elements by the dialect's op, which saturates; prefer `cast`.

    The compiler may cancel it with its inverse: 1.5 cast to int32 and back stays 1.5.

    Args:
        x: a tensor of any element type.
        target: the torch dtype.

    Returns:
        A tensor of the dtype `target` in the sizes of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.raw_cast(x, torch.int8), [300, -1])
        tensor([127,  -1], dtype=torch.int8)
    """
    return gen.CastOp(_with_element(x, target), x).result


def _number(x: Value, value: complex) -> Value:
    return Build.current().number(value, element_dtype(x))


def _broadcasting(op: type, *operands: Value) -> Value:
    return op(*broadcast_operands(*operands)).result


@vocabulary
def trunc(x: Value) -> Value:
    """Round each element towards zero; infinities become NaN.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.trunc, [-1.7, 1.7])
        tensor([-1.,  1.])
    """
    # By -1, as a division by 1 is folded away on the GPU, and `trunc` is then the identity.
    fraction = _broadcasting(gen.BroadcastingModulo, x, _number(x, -1.0))
    return gen.SubOp(x, fraction).result


# The largest number, and the magnitude up to which torch rounds to it: 61439 becomes 57344 in
# torch, but overflows in the runtime.
_FLOAT8 = {
    torch.float8_e4m3fn: (448.0, float("inf")),
    torch.float8_e5m2: (57344.0, 61439.996),
}


def _within(x: Value, limits: tuple[float, float]) -> Value:
    largest, reach = limits
    low = _broadcasting(gen.BroadcastingMaximum, x, _number(x, -largest))
    kept = _broadcasting(gen.BroadcastingMinimum, low, _number(x, largest))
    too_far = _broadcasting(gen.BroadcastingGreater, gen.AbsOp(x).result, _number(x, reach))
    return gen.WhereOp(too_far, x, kept).result


def _pinned(x: Value) -> Value:
    """Put `x` behind an op, a guard of the first kind: the compiler cancels f16 -> bf16 -> f16.

    449 then stays 449 where bfloat16 has 448.
    """
    return _broadcasting(gen.BroadcastingSub, x, _number(x, 0.0))


def _truth(x: Value) -> Value:
    if element_dtype(x).is_complex:  # the runtime cannot compare complex numbers
        parts = gen.RealPartOp(x).result, gen.ImaginaryPartOp(x).result
        return gen.OrOp(*map(_truth, parts)).result
    return _broadcasting(gen.BroadcastingNotEqual, x, _number(x, 0))


@vocabulary
def cast(x: Value, target: torch.dtype) -> Value:
    """Convert the elements as `x.to(target)` in torch; `x` itself if it has that dtype.

    Args:
        x: a tensor of any element type.
        target: the torch dtype; 64-bit dtypes become 32-bit ones.

    Returns:
        A tensor of the dtype `target` in the sizes of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.cast(x, torch.int8), [300, -1])
        tensor([44, -1], dtype=torch.int8)
    """
    source, target = element_dtype(x), types.narrow(target)
    if source == target:
        return x
    if source in (*_FLOAT8, torch.float8_e8m0fnu):  # most ops of the dialect reject float8
        return cast(raw_cast(x, torch.float32), target)
    if target in _FLOAT8:
        return raw_cast(_within(cast(x, torch.float32), _FLOAT8[target]), target)
    if target == torch.bool:
        return _truth(x)
    if source.is_complex:
        return cast(gen.RealPartOp(x).result, target)
    if target.is_complex:
        real = cast(x, torch.float32)
        # Of the magnitude: -1 * 0.0 is -0.0, which changes the sign of the logarithm.
        zero = _broadcasting(gen.BroadcastingMul, gen.AbsOp(real).result, _number(real, 0.0))
        return gen.CreateComplexOp(real, _finite_zero(real, zero)).result
    if source.is_floating_point != target.is_floating_point and source != torch.bool:
        return _between_kinds(x, target)
    if {source, target} == {torch.float16, torch.bfloat16}:
        return raw_cast(_pinned(raw_cast(x, torch.float32)), target)
    if source.is_floating_point or source == torch.bool:
        return raw_cast(x, target)
    return _wrap(x, target)


def _between_kinds(x: Value, target: torch.dtype) -> Value:
    """Cast integers to floats or floats to integers; out of range torch leaves it undefined.

    Guard of the first kind: without it the compiler removes the casts f32 -> si32 -> f32, and 1.5
    stays 1.5, or si32 -> f32 -> si32, and 2**24 + 1 stays as it is.
    """
    to_float = target.is_floating_point
    given = before_casts(x, lambda dtype: dtype.is_floating_point == to_float)
    if given is None or element_dtype(given) in (torch.bool, *_FLOAT8):
        return raw_cast(x, target)
    if to_float and x.owner.operands[0] == given:
        return cast(trunc(given), target)
    return raw_cast(barrier(x), target)


@vocabulary
def wide(x: Value) -> Value:
    """Convert float16 and bfloat16 to float32, in which torch computes before it rounds.

    Args:
        x: a tensor of any element type.

    Returns:
        A float32 tensor for narrow floats, else `x`.

    Examples:
        >>> evaluate(dialect.wide, torch.ones(2, dtype=torch.float16)).dtype
        torch.float32
    """
    return cast(x, torch.float32) if element_dtype(x) in (torch.float16, torch.bfloat16) else x


def _finite_zero(real: Value, product: Value) -> Value:
    """Return zeros of the same shape; `inf * 0` is NaN, so other elements are replaced."""
    zero = _number(real, 0.0)
    return _broadcasting(
        gen.BroadcastingWhere,
        _broadcasting(gen.BroadcastingEqual, product, zero),
        product,
        zero,
    )


def _wrap(x: Value, target: torch.dtype) -> Value:
    """Cast between integers as torch does: keep the low bits. The runtime saturates 300 to 127."""
    source, info = element_dtype(x), torch.iinfo(target)
    if source == target:
        return x
    have = torch.iinfo(source)
    if have.min >= info.min and have.max <= info.max:
        return raw_cast(x, target)
    if info.bits == 32:  # si32 <-> ui32: no wider type to wrap in
        return _reinterpret_32(x, target)
    wide = raw_cast(x, torch.int32) if source != torch.int32 else x
    if source == torch.uint32:
        wide = _reinterpret_32(x, torch.int32)
    # Guard of the first kind: 300 is 44 in 8 bits, and the runtime gives 127.
    half = _number(wide, 2 ** (info.bits - 1))
    if info.min < 0:
        wide = _broadcasting(gen.BroadcastingAdd, wide, half)
    low = _broadcasting(gen.BroadcastingBitwiseAnd, wide, _number(wide, 2**info.bits - 1))
    return raw_cast(_broadcasting(gen.BroadcastingSub, low, half) if info.min < 0 else low, target)


def _reinterpret_32(x: Value, target: torch.dtype) -> Value:
    """Reinterpret 32 bits with the other signedness, in two halves that fit both types."""
    if element_dtype(x) != torch.int32 and element_dtype(x) != torch.uint32:
        x = raw_cast(x, torch.int32)  # narrower signed: sign-extends first
        if element_dtype(x) == target:
            return x
    bits = _broadcasting(gen.BroadcastingBitwiseAnd, x, _number(x, 2**31 - 1))
    low = raw_cast(bits, target)
    zero = _number(x, 0)
    top = (
        _broadcasting(gen.BroadcastingGreater, zero, x)
        if element_dtype(x) == torch.int32
        else _broadcasting(gen.BroadcastingGreater, x, _number(x, 2**31 - 1))
    )
    flag = _number(low, -(2**31) if target == torch.int32 else 2**31)
    with_top = _broadcasting(gen.BroadcastingBitwiseOr, low, flag)
    return _broadcasting(gen.BroadcastingWhere, top, with_top, low)
