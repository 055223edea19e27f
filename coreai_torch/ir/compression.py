"""Packed constants of types that torch cannot compute with, and the ops that decompress them.

Element types go by the dialect's names: `ui4`, `si8`, `f4E2M1FN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import (
    DenseElementsAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    RankedTensorType,
    Type,
    Value,
)

from . import constants, types
from .build import Build


def element_name(x: Value) -> str:
    """Return the name of the element type of a value."""
    return str(x.type.element_type)


def packed(
    source: torch.Tensor,
    element: str,
    shape: Sequence[int],
    pack: Callable[[torch.Tensor], torch.Tensor],
    name: str,
) -> Value:
    """Return a constant of a type; `pack` computes its bytes from a tensor, once per tensor."""
    type_ = RankedTensorType.get(list(shape), Type.parse(element))
    return constants.emit(Build.current().constants.packed(source, type_, pack, name))


def splat(number: float, element: str, shape: Sequence[int]) -> Value:
    """Return a constant with one number everywhere; some ops accept zeros in this form only."""
    type_ = Type.parse(element)
    attribute = IntegerAttr if IntegerType.isinstance(type_) else FloatAttr
    one = attribute.get(type_, number)
    stored = DenseElementsAttr.get_splat(RankedTensorType.get(list(shape), type_), one)
    return constants.emit(stored)


def lut_to_dense(indices: Value, lut: Value, axis: int) -> Value:
    """Emit the op; a negative axis aborts the process (coreai-core 1.0.0b2)."""
    return gen.LutToDenseOp(indices, lut, splat(axis, "si16", ())).result


def blockwise_shift_scale(data: Value, scale: Value, offset1: Value, offset2: Value) -> Value:
    """`scale * (data - offset1) + offset2` in the type of `offset2`.

    `scale` must have that type too, unless it is f8E8M0FNU: with another one the result is
    silently wrong. 16-bit integers as data kill the process.
    """
    return gen.BlockwiseShiftScaleOp(data, scale, offset1, offset2).result


def sparse_to_dense(values: Value, mask: Value) -> Value:
    """Return the values at the marked places (`ui1`), zeros elsewhere."""
    return gen.SparseWithBitmaskToDenseOp(gen.BuildSparseWithBitmaskOp(values, mask).result).result


def quantize(x: Value, scale: Value, offset1: Value, offset2: Value, axes: Value) -> Value:
    """`round((x - offset2) / scale) + offset1` in the type of `offset1`, saturating."""
    return gen.QuantizeOp(x, scale, offset1, offset2, axes).result


def dequantize(x: Value, scale: Value, offset1: Value, offset2: Value, axes: Value) -> Value:
    """`(x - offset1) * scale + offset2` in the type of `offset2`, which is that of `scale`."""
    return gen.DequantizeOp(x, scale, offset1, offset2, axes).result


def widened(x: Value, dtype: torch.dtype) -> Value:
    """Cast integers of a few bits to a dtype that torch has."""
    return gen.CastOp(types.tensor(x.type.shape, types.element(dtype)), x).result
