"""Arithmetic of one or two tensors; sizes broadcast, element types must be equal."""

from __future__ import annotations

from typing import Any

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Value

from ..errors import ArgumentTypeError
from .broadcasting import broadcast_operands
from .build import Build
from .casting import cast, is_complex, is_float
from .literals import zeros
from .logic import broadcast
from .operands import Operand, vocabulary
from .reassociation import block_reassociation
from .shapes import sizes


def _chained(op: Any, x: Value, y: Value) -> Value:
    """Emit a sum or product so that the compiler does not reassociate it wrongly."""
    return op(*broadcast_operands(*block_reassociation(op.OPERATION_NAME, x, y))).result


@vocabulary
def add(x: Operand, y: Operand) -> Value:
    """Return `x + y`; integers wrap.

    Booleans are not accepted: use `logical_or`.

    Takes floats, integers or complex numbers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x, y: dialect.add(x, y), [1.0, 2.0], [10.0, 20.0])
        tensor([11., 22.])
        >>> evaluate(lambda x: dialect.add(x, 1), [1.0, 2.0])
        tensor([2., 3.])
    """
    return _chained(gen.BroadcastingAdd, x, y)


@vocabulary
def sub(x: Operand, y: Operand) -> Value:
    """Return `x - y`; integers wrap.

    Takes floats, integers or complex numbers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.sub(1, x), [1.0, 2.0])
        tensor([ 0., -1.])
    """
    return _chained(gen.BroadcastingSub, x, y)


@vocabulary
def mul(x: Operand, y: Operand) -> Value:
    """Return `x * y`; integers wrap.

    Booleans are not accepted: use `logical_and`.

    Takes floats, integers or complex numbers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.mul(x, 0.5), [1.0, 3.0])
        tensor([0.5000, 1.5000])
    """
    return _chained(gen.BroadcastingMul, x, y)


@vocabulary
def div(x: Operand, y: Operand) -> Value:
    """Return `x / y`; integers are rounded towards zero.

    The process aborts on an integer division by zero: guard the divisor with `where`.

    Takes floats, integers or complex numbers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.div(x, 2), [1.0, 3.0])
        tensor([0.5000, 1.5000])
    """
    return _chained(gen.BroadcastingDivide, x, y)


@vocabulary
def floor_divide(x: Operand, y: Operand) -> Value:
    """Return `x / y`, rounded down.

    The process aborts on an integer division by zero.

    Takes floats or integers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.floor_divide(x, 2), [-3, 3])
        tensor([-2,  1], dtype=torch.int32)
    """
    return gen.BroadcastingFloorDivide(*broadcast_operands(x, y)).result


@vocabulary
def modulo(x: Operand, y: Operand) -> Value:
    """Return the remainder of `x / y` with the sign of `x`, as `fmod` in C.

    The process aborts on an integer division by zero.

    Takes floats or integers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.modulo(x, 3), [-4.0, 4.0])
        tensor([-1.,  1.])
    """
    return gen.BroadcastingModulo(*broadcast_operands(x, y)).result


@vocabulary
def maximum(x: Operand, y: Operand) -> Value:
    """Return the larger of `x` and `y` for each element.

    Takes floats or integers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.maximum(x, 0), [-1.0, 2.0])
        tensor([0., 2.])
    """
    return gen.BroadcastingMaximum(*broadcast_operands(x, y)).result


@vocabulary
def minimum(x: Operand, y: Operand) -> Value:
    """Return the smaller of `x` and `y` for each element.

    Takes floats or integers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.minimum(x, 0), [-1.0, 2.0])
        tensor([-1.,  0.])
    """
    return gen.BroadcastingMinimum(*broadcast_operands(x, y)).result


@vocabulary
def pow_(x: Operand, y: Operand) -> Value:
    """Return `x ** y`; integers wrap.

    `pow` is another name of this function.

    Takes floats, integers or complex numbers; returns their type in the broadcast sizes.

    Examples:
        >>> evaluate(lambda x: dialect.pow(x, 2), [2.0, 3.0])
        tensor([4., 9.])
    """
    if is_float(x):
        return gen.BroadcastingPow(*broadcast_operands(x, y)).result
    # BroadcastingPow rejects complex numbers, computes integers in double, and aborts if 2 ** 7
    # does not fit si8. PowOp on operands of equal sizes is safe.
    return gen.PowOp(*broadcast(x, y)).result


@vocabulary
def neg(x: Value) -> Value:
    """Return `-x` of each element.

    Args:
        x: a tensor of floats, integers or complex numbers.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(dialect.neg, [1.0, -2.0])
        tensor([-1.,  2.])
    """
    # A subtraction from zero would give 0.0 for 0.0, not -0.0.
    return mul(x, -1) if is_float(x) else sub(0, x)


@vocabulary
def abs_(x: Value) -> Value:
    """Return the absolute value of each element.

    `abs` is another name of this function.

    Takes floats or integers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.abs, [-1.5, 2.0])
        tensor([1.5000, 2.0000])
    """
    return gen.AbsOp(x).result


@vocabulary
def round_(x: Value) -> Value:
    """Round each element to the nearest integer, ties to even.

    `round` is another name of this function.

    Takes floats or integers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.round, [0.5, 1.5, 1.7])
        tensor([0., 2., 2.])
    """
    return gen.RoundOp(x).result


@vocabulary
def matmul(x: Value, y: Value) -> Value:
    """Multiply matrices; batches broadcast, and an empty inner axis gives zeros.

    Args:
        x: a tensor `[..., m, k]` of floats, integers or complex numbers.
        y: a tensor `[..., k, n]` of the element type of `x`.

    Returns:
        A tensor `[..., m, n]` of the element type of `x`.

    Examples:
        >>> evaluate(dialect.matmul, [[1.0, 2.0]], [[3.0], [4.0]])
        tensor([[11.]])
    """
    # The runtime leaves the result of `[s0, 0] @ [0, 5]` unwritten.
    if x.type.rank > 1 and x.type.shape[-1] == 0:
        x, y = (zeros(v, [d if d != 0 else 1 for d in sizes(v)]) for v in (x, y))
    return gen.BroadcastingBatchMatmul(x, y).result


@vocabulary
def real_part(x: Value) -> Value:
    """Return the real part of each element.

    Takes complex numbers; returns float32.

    Examples:
        >>> evaluate(dialect.real_part, [1 + 2j])
        tensor([1.])
    """
    _check_complex("real_part", x)
    constant = Build.current().changed(x, lambda tensor: tensor.real.contiguous())
    return gen.RealPartOp(x).result if constant is None else constant


@vocabulary
def imaginary_part(x: Value) -> Value:
    """Return the imaginary part of each element.

    Takes complex numbers; returns float32.

    Examples:
        >>> evaluate(dialect.imaginary_part, [1 + 2j])
        tensor([2.])
    """
    _check_complex("imaginary_part", x)
    constant = Build.current().changed(x, lambda tensor: tensor.imag.contiguous())
    return gen.ImaginaryPartOp(x).result if constant is None else constant


def _check_complex(name: str, x: Value) -> None:
    """Reject real operands, on which the bindings abort the process (coreai-core 1.0.0b3)."""
    if not is_complex(x):
        raise ArgumentTypeError(
            f"dialect.{name}: x has the type {x.type}, but only complex numbers have parts"
            "\n  try   test with dialect.is_complex(x) first"
        )


@vocabulary
def create_complex(real: Value, imaginary: Value) -> Value:
    """Return complex numbers with these real and imaginary parts.

    Args:
        real: a tensor of floats or integers, which are cast to float32.
        imaginary: a tensor in the sizes of `real`.

    Returns:
        A complex64 tensor in the sizes of `real`.

    Examples:
        >>> evaluate(dialect.create_complex, [1.0], [2.0])
        tensor([1.+2.j])
    """
    return gen.CreateComplexOp(cast(real, torch.float32), cast(imaginary, torch.float32)).result
