"""Linear layers as 1x1 convolutions of `(B, C, 1, S)`, which the neural engine prefers.

The layout stays between layers: an elementwise op of a value in this layout is computed in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind, known, made_by, numbers, rebuilt

_MOST = 1 << 24  # elements of a weight
_UNARY = ("relu", "sigmoid", "tanh", "silu", "gelu", "abs", "exp", "sqrt", "rsqrt", "erf")
_BINARY = ("add", "sub", "mul", "divide", "maximum", "minimum")
_TO_ROWS = [0, 2, 3, 1]  # (B, C, 1, S) to (B, 1, S, C)


def apply(op: Operation) -> Sequence[Value] | None:
    """Replace a product with a constant matrix, and elementwise ops between two of them."""
    if kind(op) == "batch_matmul":
        return _linear(op)
    if kind(op) in (*_UNARY, *_BINARY):
        return _elementwise(op)
    return None


def _linear(op: Operation) -> Sequence[Value] | None:
    x, weight = op.operands
    matrix = known(weight)
    sizes = list(op.results[0].type.shape)
    if matrix is None or matrix.dim() != 2 or matrix.numel() > _MOST or not d.is_float(x):
        return None
    if x.type.rank not in (2, 3) or any(n < 1 for n in (*x.type.shape, *sizes)):
        return None
    inside = _channels(x)
    if inside is None:
        batch = math.prod(x.type.shape[:-2])
        rows = d.reshape(x, [batch, 1, *x.type.shape[-2:]])
        inside = d.transpose(rows, [0, 3, 1, 2])
    kernel = d.tensor_constant(matrix.T.contiguous()[:, :, None, None])
    return [_rows(d.conv(inside, kernel, [1, 1], [1, 1], 1), sizes)]


def _elementwise(op: Operation) -> Sequence[Value] | None:
    """Compute in the layout if an operand is in it; the others may be numbers or vectors."""
    result = op.results[0]
    inside = [_channels(value) for value in op.operands]
    if not any(value is not None for value in inside):
        return None
    shape = next(list(value.type.shape) for value in inside if value is not None)
    others = [
        value if value is not None else _aligned(operand, result)
        for value, operand in zip(inside, op.operands, strict=True)
    ]
    if any(value is None or not _fits(value, shape) for value in others):
        return None
    type_ = d.RankedTensorType.get(shape, result.type.element_type)
    (computed,) = rebuilt(op, [value for value in others if value is not None], [type_])
    return [_rows(computed, list(result.type.shape))]


def _rows(value: Value, sizes: Sequence[int]) -> Value:
    """Return a value of the layout as rows."""
    return d.reshape(d.transpose(value, _TO_ROWS), list(sizes))


def _channels(value: Value) -> Value | None:
    """Return the value in the layout that `_rows` emitted this value from."""
    reshaped = made_by(value, "reshape")
    moved = None if reshaped is None else made_by(reshaped.operands[0], "transpose")
    if moved is None or numbers(moved.operands[1]) != _TO_ROWS:
        return None
    inside = moved.operands[0]
    return inside if inside.type.shape[2] == 1 and value.type.rank in (2, 3) else None


def _aligned(value: Value, result: Value) -> Value | None:
    """Return a constant number, or a vector along the last axis, in the layout."""
    constant = known(value)
    if constant is None:
        return None
    if constant.numel() == 1:
        return d.tensor_constant(constant.reshape([1] * 4))
    if constant.numel() != constant.shape[-1] or constant.numel() != result.type.shape[-1]:
        return None
    return d.tensor_constant(constant.reshape(1, -1, 1, 1))


def _fits(value: Value, shape: Sequence[int]) -> bool:
    pairs = zip(value.type.shape, shape, strict=True)
    return all(own in (1, size) for own, size in pairs)
