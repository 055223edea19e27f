"""Functions of one float or complex tensor, element by element."""

from __future__ import annotations

from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Value

from .arithmetic import maximum
from .build import Build
from .operands import check_choice, vocabulary


@vocabulary
def acos(x: Value) -> Value:
    """Return the arc cosine of each element, in radians.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.acos, [1.0, 0.0])
        tensor([0.0000, 1.5708])
    """
    return gen.AcosOp(x).result


@vocabulary
def acosh(x: Value) -> Value:
    """Return the inverse hyperbolic cosine of each element.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.acosh, [1.0, 2.0])
        tensor([0.0000, 1.3170])
    """
    return gen.AcoshOp(x).result


@vocabulary
def asin(x: Value) -> Value:
    """Return the arc sine of each element, in radians.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.asin, [0.0, 1.0])
        tensor([0.0000, 1.5708])
    """
    return gen.AsinOp(x).result


@vocabulary
def asinh(x: Value) -> Value:
    """Return the inverse hyperbolic sine of each element.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.asinh, [0.0, 1.0])
        tensor([0.0000, 0.8814])
    """
    return gen.AsinhOp(x).result


@vocabulary
def atan(x: Value) -> Value:
    """Return the arc tangent of each element, in radians.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.atan, [0.0, 1.0])
        tensor([0.0000, 0.7854])
    """
    return gen.AtanOp(x).result


@vocabulary
def atanh(x: Value) -> Value:
    """Return the inverse hyperbolic tangent of each element.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.atanh, [0.0, 0.5])
        tensor([0.0000, 0.5493])
    """
    return gen.AtanhOp(x).result


@vocabulary
def cos(x: Value) -> Value:
    """Return the cosine of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.cos, [0.0, 1.0])
        tensor([1.0000, 0.5403])
    """
    return gen.CosOp(x).result


@vocabulary
def cosh(x: Value) -> Value:
    """Return the hyperbolic cosine of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.cosh, [0.0, 1.0])
        tensor([1.0000, 1.5431])
    """
    return gen.CoshOp(x).result


@vocabulary
def erf(x: Value) -> Value:
    """Return the error function of each element.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.erf, [0.0, 1.0])
        tensor([0.0000, 0.8427])
    """
    return gen.ErfOp(x).result


@vocabulary
def exp(x: Value) -> Value:
    """Return e to the power of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.exp, [0.0, 1.0])
        tensor([1.0000, 2.7183])
    """
    return gen.ExpOp(x).result


@vocabulary
def log(x: Value) -> Value:
    """Return the natural logarithm of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.log, [1.0, 10.0])
        tensor([0.0000, 2.3026])
    """
    return gen.LogOp(x).result


@vocabulary
def rsqrt(x: Value) -> Value:
    """Return one over the square root of each element.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.rsqrt, [4.0, 16.0])
        tensor([0.5000, 0.2500])
    """
    return gen.RsqrtOp(x).result


@vocabulary
def sigmoid(x: Value) -> Value:
    """Return `1 / (1 + exp(-x))` of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.sigmoid, [0.0, 2.0])
        tensor([0.5000, 0.8808])
    """
    return gen.SigmoidOp(x).result


@vocabulary
def silu(x: Value) -> Value:
    """Return `x * sigmoid(x)` of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.silu, [0.0, 2.0])
        tensor([0.0000, 1.7616])
    """
    return gen.SiluOp(x).result


@vocabulary
def sin(x: Value) -> Value:
    """Return the sine of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.sin, [0.0, 1.0])
        tensor([0.0000, 0.8415])
    """
    return gen.SinOp(x).result


@vocabulary
def sinh(x: Value) -> Value:
    """Return the hyperbolic sine of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.sinh, [0.0, 1.0])
        tensor([0.0000, 1.1752])
    """
    return gen.SinhOp(x).result


@vocabulary
def sqrt(x: Value) -> Value:
    """Return the square root of each element; negative numbers give NaN.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.sqrt, [4.0, 2.0])
        tensor([2.0000, 1.4142])
    """
    return gen.SqrtOp(x).result


@vocabulary
def tan(x: Value) -> Value:
    """Return the tangent of each element.

    Takes floats or complex numbers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.tan, [0.0, 1.0])
        tensor([0.0000, 1.5574])
    """
    return gen.TanOp(x).result


@vocabulary
def tanh(x: Value) -> Value:
    """Return the hyperbolic tangent of each element.

    Takes floats; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.tanh, [0.0, 1.0])
        tensor([0.0000, 0.7616])
    """
    return gen.TanhOp(x).result


@vocabulary
def relu(x: Value) -> Value:
    """Return `max(x, 0)` of each element.

    Takes floats or integers; returns the type of `x`.

    Examples:
        >>> evaluate(dialect.relu, [-1.0, 2.0])
        tensor([0., 2.])
    """
    # ReLUOp broadcasts a scalar zero and crashes on an empty operand (coreai-core 1.0.0b2).
    if Build.current().zero_sizes.of(x):
        return maximum(x, 0)
    return gen.ReLUOp(x).result


@vocabulary
def gelu(x: Value, approximate: str) -> Value:
    """Return the Gaussian error linear unit of each element.

    Args:
        x: a tensor of floats.
        approximate: `"none"` for the formula with `erf`, `"tanh"` for the approximation.

    Returns:
        A tensor of the type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.gelu(x, "none"), [-1.0, 2.0])
        tensor([-0.1587,  1.9545])
    """
    check_choice("gelu", "approximate", approximate, ("none", "tanh"))
    return _coreai.gelu(x, approximate=approximate)
