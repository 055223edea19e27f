"""Constants, and tensors that are filled with one number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Value

from . import shapes, types
from .build import Build
from .casting import cast, is_bool, is_complex
from .casting import dtype as dtype_of
from .operands import Number, Operand, vocabulary
from .shapes import Dim


@vocabulary
def constant(value: Number | Sequence[Number], dtype: torch.dtype) -> Value:
    """Return a number, or a flat list of numbers, as a constant.

    Args:
        value: a number, or a list of numbers.
        dtype: the torch dtype; 64-bit dtypes become 32-bit ones.

    Returns:
        A rank-0 tensor, or a vector for a list.

    Examples:
        >>> evaluate(lambda: dialect.constant([1, 2], torch.float32))
        tensor([1., 2.])
    """
    return Build.current().constant(value, types.narrow(dtype))


@vocabulary
def tensor_constant(tensor: torch.Tensor, name: str = "table") -> Value:
    """Return a tensor as a constant; equal tensors are stored once.

    Args:
        tensor: the content; 64-bit dtypes become 32-bit ones.
        name: a word for the name of the constant in the asset.

    Returns:
        A tensor of the same sizes.

    Examples:
        >>> evaluate(lambda: dialect.tensor_constant(torch.eye(2)))
        tensor([[1., 0.],
                [0., 1.]])
    """
    return Build.current().tensor(tensor, name)


@vocabulary
def like(x: Value, number: Number) -> Value:
    """Return a number as a rank-0 tensor of the element type of `x`.

    Args:
        x: a tensor of any element type.
        number: a number, which becomes a constant, or a rank-0 tensor, which is cast. A float is
            rounded towards zero if `x` has integers.

    Returns:
        A rank-0 tensor of the element type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.like(x, 0.5), torch.ones(2, dtype=torch.float16))
        tensor(0.5000, dtype=torch.float16)
    """
    return cast(number, dtype_of(x)) if isinstance(number, Value) else constant(number, dtype_of(x))


@vocabulary
def zeros(x: Value, dims: Sequence[Dim]) -> Value:
    """Return zeros of the element type of `x`.

    Args:
        x: a tensor of any element type; only its element type is used.
        dims: the sizes of the result, as numbers or rank-0 tensors.

    Returns:
        A tensor of the element type of `x` in the sizes `dims`.

    Examples:
        >>> evaluate(lambda x: dialect.zeros(x, [2, 3]), [1.0])
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return shapes.broadcast_to(like(x, 0), dims)


@vocabulary
def range_(start: Operand, stop: Operand, step: Operand) -> Value:
    """Return `start`, `start + step` and so on, up to `stop`, which is excluded.

    `range` is another name of this function. The process aborts if `step` is zero.

    Args:
        start: a rank-0 tensor of floats or integers, or a number.
        stop: the same, of the element type of `start`.
        step: the same, of the element type of `start`.

    Returns:
        A vector of the element type of `start`.

    Examples:
        >>> evaluate(lambda: dialect.range(dialect.i32(0), 6, 2))
        tensor([0, 2, 4], dtype=torch.int32)
    """
    return gen.RangeOp(start, stop, step).result


@vocabulary
def known_number(x: Value) -> int | float | None:
    """Return the number of a constant whose elements are all equal, else None.

    Args:
        x: a tensor of any element type.

    Returns:
        A Python number; None for other tensors, booleans and complex numbers.

    Examples:
        >>> evaluate(lambda x: dialect.known_number(dialect.like(x, 3)), [1.0])
        3.0
    """
    if not shapes.is_constant(x) or is_bool(x) or is_complex(x):
        return None
    stored = x.owner.attributes["value"]
    if not getattr(stored, "is_splat", False):
        return None
    number: int | float = stored.get_splat_value().value
    return number
