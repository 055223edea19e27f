"""Comparisons, boolean and bitwise ops, and the choice between two tensors."""

from __future__ import annotations

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Value

from . import types
from .broadcasting import broadcast_operands
from .build import Build
from .casting import element_dtype
from .operands import Operand, vocabulary
from .reassociation import is_computed_from_constants
from .removable import made_by


@vocabulary
def equal(x: Operand, y: Operand) -> Value:
    """Return whether `x == y`; NaN equals nothing.

    Takes floats, integers or booleans; returns booleans in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.equal(x, 2), [1.0, 2.0])
        tensor([False,  True])
    """
    same = gen.BroadcastingEqual(*broadcast_operands(x, y)).result
    return logical_and(same, logical_not(_differ(x, y))) if _is_rounded(x, y) else same


@vocabulary
def not_equal(x: Operand, y: Operand) -> Value:
    """Return whether `x != y`.

    Takes floats, integers or booleans; returns booleans in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.not_equal(x, 2), [1.0, 2.0])
        tensor([ True, False])
    """
    other = gen.BroadcastingNotEqual(*broadcast_operands(x, y)).result
    return logical_or(other, _differ(x, y)) if _is_rounded(x, y) else other


def _is_rounded(x: Value, y: Value) -> bool:
    """Return whether the compiler compares two floats while it folds constants, with a tolerance.

    Guard of the first kind: it finds 3 equal to infinity, and 1 equal to 1.0000001 (coreai-core
    1.0.0b3): with a constant operand, `hypot` was infinite and complex powers were NaN. It orders
    constants correctly.
    """
    return (
        x is not y
        and element_dtype(x).is_floating_point
        and is_computed_from_constants(x)
        and is_computed_from_constants(y)
    )


def _differ(x: Value, y: Value) -> Value:
    return logical_or(greater(x, y), greater(y, x))


@vocabulary
def greater(x: Operand, y: Operand) -> Value:
    """Return whether `x > y`.

    Takes floats or integers; returns booleans in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.greater(x, 1), [1.0, 2.0])
        tensor([False,  True])
    """
    return gen.BroadcastingGreater(*broadcast_operands(x, y)).result


@vocabulary
def less(x: Operand, y: Operand) -> Value:
    """Return whether `x < y`.

    Takes floats or integers; returns booleans in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.less(x, 2), [1.0, 2.0])
        tensor([ True, False])
    """
    return greater(y, x)


@vocabulary
def logical_and(x: Operand, y: Operand) -> Value:
    """Return whether both of `x` and `y` are true.

    Takes booleans; returns booleans in the broadcast sizes.

    Examples:
        >>> evaluate(dialect.logical_and, [True, True, False], [True, False, False])
        tensor([ True, False, False])
    """
    return gen.BroadcastingAnd(*broadcast_operands(x, y)).result


@vocabulary
def logical_or(x: Operand, y: Operand) -> Value:
    """Return whether at least one of `x` and `y` is true.

    Takes booleans; returns booleans in the broadcast sizes.

    Examples:
        >>> evaluate(dialect.logical_or, [True, True, False], [True, False, False])
        tensor([ True,  True, False])
    """
    return gen.BroadcastingOr(*broadcast_operands(x, y)).result


@vocabulary
def logical_xor(x: Operand, y: Operand) -> Value:
    """Return whether exactly one of `x` and `y` is true.

    Takes booleans; returns booleans in the broadcast sizes.

    Examples:
        >>> evaluate(dialect.logical_xor, [True, True, False], [True, False, False])
        tensor([False,  True, False])
    """
    return gen.BroadcastingXor(*broadcast_operands(x, y)).result


@vocabulary
def logical_not(x: Value) -> Value:
    """Return whether each element is false.

    Args:
        x: a bool tensor.

    Returns:
        A bool tensor in the sizes of `x`.

    Examples:
        >>> evaluate(dialect.logical_not, [True, False])
        tensor([False,  True])
    """
    if made_by(x) == gen.BroadcastingEqual.OPERATION_NAME:
        return gen.BroadcastingNotEqual(*x.owner.operands).result
    return gen.NotOp(x).result


@vocabulary
def bitwise_and(x: Operand, y: Operand) -> Value:
    """Return the bitwise and of `x` and `y`.

    Takes integers or booleans; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.bitwise_and(x, 6), [3, 5])
        tensor([2, 4], dtype=torch.int32)
    """
    return gen.BroadcastingBitwiseAnd(*broadcast_operands(x, y)).result


@vocabulary
def bitwise_or(x: Operand, y: Operand) -> Value:
    """Return the bitwise or of `x` and `y`.

    Takes integers or booleans; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.bitwise_or(x, 6), [3, 5])
        tensor([7, 7], dtype=torch.int32)
    """
    return gen.BroadcastingBitwiseOr(*broadcast_operands(x, y)).result


@vocabulary
def bitwise_xor(x: Operand, y: Operand) -> Value:
    """Return the bitwise exclusive or of `x` and `y`.

    Takes integers or booleans; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.bitwise_xor(x, 6), [3, 5])
        tensor([5, 3], dtype=torch.int32)
    """
    return gen.BroadcastingBitwiseXor(*broadcast_operands(x, y)).result


@vocabulary
def where(condition: Value, a: Operand, b: Operand) -> Value:
    """Return `a` where the condition holds, else `b`; all sizes broadcast.

    Args:
        condition: a bool tensor.
        a: a tensor of any element type, or a number.
        b: a tensor of the element type of `a`, or a number; not both are numbers.

    Returns:
        The element type of `a`, in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.where(dialect.greater(x, 0), x, 0), [-1.0, 2.0])
        tensor([0., 2.])
    """
    return gen.BroadcastingWhere(*broadcast_operands(condition, a, b)).result


@vocabulary
def broadcast(x: Operand, y: Operand) -> tuple[Value, Value]:
    """Expand both operands to their common sizes.

    Args:
        x: a tensor of any element type, or a number.
        y: a tensor of the element type of `x`, or a number; sizes broadcast.

    Returns:
        Two tensors of the same type.

    Examples:
        >>> evaluate(dialect.broadcast, [1.0, 2.0], [[5.0], [6.0]])
        (tensor([[1., 2.],
                [1., 2.]]), tensor([[5., 5.],
                [6., 6.]]))
    """
    if _have_equal_sizes(x, y):
        return x, y
    always = Build.current().number(True, torch.bool)
    return where(always, x, y), where(always, y, x)


def _have_equal_sizes(x: Value, y: Value) -> bool:
    return bool(x.type == y.type and types.DYNAMIC not in x.type.shape)
