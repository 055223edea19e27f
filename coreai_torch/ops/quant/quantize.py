"""Lower quantize and dequantize of activations, computed at run time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...compression import checks
from ...compression.scalars import Integers
from ...compression.scalars import integers as integers_of
from ...ir import compression as cmp
from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering.binding import Axis, ConstantOrValue
from ...lowering.cases import T, bf16, case, f16, f32, i8, i32, u8
from ...lowering.context import Ctx
from ...lowering.registry import lowers
from .compressed_weights import (
    ELEMENT,
    floats,
    integers,
    packed_operand,
    refuse_unless,
    scaled_integers,
)

coreai = torch.ops.coreai

_TIES = (0.5, 1.5, 2.5, -0.5, -1.5, 0.25, 300.0, -300.0, float("inf"), float("-inf"), float("nan"))
_FLOAT8 = {torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2"}


def _fixed(make: Any, *shape: int, **more: Any) -> T:
    weight: T = make(*shape, constant=True, **more)
    return weight


_ONE = _fixed(f32, values=(1.0,))
_SCALES = _fixed(f32, 5, values=(0.1, 0.25, 1.0, 0.037, 2.0))


@lowers(
    coreai.quantize.default,
    cases=[
        case(f32(3, 11, values=_TIES), _ONE, torch.int8),
        case(f32(3, 11, values=_TIES), _ONE, torch.uint8, _fixed(u8, values=(3,))),
        case(f32(3, 11, values=_TIES), _ONE, torch.int8, minval=_fixed(f32, values=(-1.5,))),
        *(
            case(f32(3, 11, values=_TIES), _fixed(f32, values=(0.5,)), dtype)
            for dtype in (torch.int4, torch.uint4, torch.int2, torch.uint3)
        ),
        case(f32(3, 5, low=-9, high=9), _SCALES, torch.int8, axis=1),
        case(f32(3, 5, low=-9, high=9), _SCALES, torch.uint8, _fixed(u8, 5), axis=-1),
        case(f32(5, 2, low=-9, high=9), _SCALES, torch.int8, minval=_fixed(f32, 5)),
        case(f32(2, 5, low=-9, high=9), _SCALES, torch.int4, _fixed(i8, low=-2, high=2), axis=1),
        case(f16(4, 50, low=-9, high=9), _fixed(f16, values=(0.1,)), torch.int8),
        case(bf16(4, 50, low=-9, high=9), _fixed(f32, values=(0.1,)), torch.int8),
        case(i32(4, 5), _fixed(f32, values=(0.3,)), torch.int8),
        case(f32(), _fixed(f32, values=(0.1,)), torch.int8),
        case(f32(3, 5), _fixed(f32, 1, 1, values=(0.1,)), torch.int8),
        case(f32(3, 5), f32(low=0.1, high=0.2), torch.int8, i8()),
    ],
)
def quantize(
    ctx: Ctx,
    x: Value,
    scale: ConstantOrValue,
    output_dtype: torch.dtype,
    zero_point: ConstantOrValue | None,
    minval: ConstantOrValue | None,
    axis: Axis,
) -> Value:
    numbers = integers_of(output_dtype)
    same_dtype = all(h is None or _dtype(h) == cai.dtype(x) for h in (scale, minval))
    # The op computes in float32 whatever the dtype, but all operands must have the same dtype.
    dtype = cai.dtype(x) if same_dtype and cai.is_float(x) else torch.float32
    parameters = _Parameters(ctx, _element(output_dtype), scale, zero_point, minval)
    data, axes = _at_least_1d(cai.cast(x, dtype)), parameters.axes(x, axis)
    zero = parameters.offset(numbers)
    result = cmp.quantize(
        data, parameters.floats("scale", dtype), zero, parameters.low(dtype), axes
    )
    return _restore_rank(ctx, _to_container(result, numbers))


@lowers(
    coreai.dequantize.default,
    cases=[
        case(i8(3, 5, low=-128, high=127), _ONE),
        case(u8(3, 5, high=255), _ONE, _fixed(u8, values=(130,))),
        case(i8(3, 5, low=-128, high=127), _SCALES, None, _fixed(f32, 5), 1),
        case(i8(5, 3), _SCALES, _fixed(i8, 5), input_dtype=torch.int8),
        case(i8(5, 3, low=-8, high=7), _SCALES, _fixed(i8, 5, low=-8, high=7), None, 0, torch.int4),
        case(i8(5, 3, low=-8, high=7), _ONE, None, _fixed(f32), 0, torch.int4),
        case(i8(3, 5), _fixed(f16, values=(0.1,)), None, _fixed(f16)),
        case(i8(3, 5), _fixed(bf16, values=(0.1,)), output_dtype=torch.float32),
        case(i32(3, 5), _ONE, input_dtype=torch.int8),
        case(i8(), _ONE),
        case(i8(3, 5), f32(), i8()),
        case(i8(3, 5), f32(5, fixed=True), axis=1),
        *(
            case(T((3, 5), dtype, low=-9, high=9, constant=True), _SCALES, axis=1)
            for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
        ),
        # A constant weight is packed, and scaled by blocks.
        *(
            case(_fixed(i8, 4, 5, low=-2, high=1), _SCALES, None, low, 1, dtype)
            for dtype in (torch.int2, torch.int4, torch.int8)
            for low in (None, _fixed(f32, 5))
        ),
        case(_fixed(u8, 4, 5, high=7), _SCALES, _fixed(u8, 5, high=7), None, 1, torch.uint3),
    ],
)
def dequantize(
    ctx: Ctx,
    x: ConstantOrValue,
    scale: ConstantOrValue,
    zero_point: ConstantOrValue | None,
    minval: ConstantOrValue | None,
    axis: Axis,
    input_dtype: torch.dtype | None,
    output_dtype: torch.dtype | None,
) -> Value:
    kind = checks.data(ctx.fake("input"), ctx.fake("scale"), input_dtype)
    x, dtype, numbers = packed_operand(x), ctx.out_dtype, kind.numbers
    if isinstance(x, torch.Tensor):
        if numbers is not None and x.dim():
            value = (scale, zero_point, minval)
            return scaled_integers(ctx, x, numbers, *(_as_block(h, axis, x.dim()) for h in value))
        x = cai.tensor_constant(x, ctx.path("input"))
    parameters = _Parameters(ctx, cmp.element_name(x), scale, zero_point, minval)
    if numbers is not None:
        x = cai.cast(x, numbers.container)
        parameters = replace(parameters, element=cmp.element_name(x))
    data, axes = _at_least_1d(x), parameters.axes(x, axis)
    zero = parameters.offset(numbers)
    result = cmp.dequantize(
        data, parameters.floats("scale", dtype), zero, parameters.low(dtype), axes
    )
    return _restore_rank(ctx, result)


@dataclass(frozen=True)
class _Parameters:
    """Scale and offsets of equal length: one number each, or one per position on the axis."""

    ctx: Ctx
    element: str  # of the quantized integers
    scale: Any
    zero_point: Any
    minval: Any

    @property
    def shape(self) -> list[int]:
        names = ("scale", "zero_point", "minval")
        fakes = [self.ctx.fake(n) for n in names if getattr(self, n) is not None]
        length = max(int(f.numel()) for f in fakes)
        return [] if length == 1 else [length]

    def axes(self, x: Value, axis: int) -> Value:
        """Return the quantization axis, or all axes if there is one scale for the tensor."""
        all_axes = list(range(max(x.type.rank, 1)))
        return cai.i32(axis if self.shape else all_axes)

    def floats(self, name: str, dtype: torch.dtype) -> Value:
        return floats(self.ctx, name, self._spread(getattr(self, name)), dtype)

    def low(self, dtype: torch.dtype) -> Value:
        """Return the offset that is subtracted from, or added to, the floats."""
        if self.minval is None:
            return cmp.splat(0.0, ELEMENT[dtype], self.shape)
        return self.floats("minval", dtype)

    def offset(self, numbers: Integers | None) -> Value:
        """Return the offset that is added to, or subtracted from, the integers."""
        if numbers is None or (self.zero_point is None and self.minval is None):
            return cmp.splat(0, self.element, self.shape)
        if self.minval is not None:
            return cmp.splat(numbers.low, self.element, self.shape)
        value, path = self._spread(self.zero_point), self.ctx.path("zero_point")
        if isinstance(value, torch.Tensor):
            refuse_unless(self.ctx, "zero_point", checks.within, value, numbers)
            bits = 4 if self.element in ("si4", "ui4") else 8
            return integers(value, Integers(bits, numbers.signed), path)
        if self.element not in ("si8", "ui8"):
            self.ctx.refuse(f"4-bit zero_point {path!r} computed at run time is not supported")
        return cai.cast(value, numbers.container)

    def _spread(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.reshape([] if value.numel() == 1 else [-1]).expand(self.shape)
        own = [] if math.prod(value.type.shape) == 1 else [math.prod(value.type.shape)]
        return cai.broadcast_to(cai.reshape(value, own), self.shape)


def _element(dtype: torch.dtype) -> str:
    """Return the element type in which the op quantizes: 4-bit or 8-bit for integers."""
    numbers = integers_of(dtype)
    if numbers is None:
        return _FLOAT8[dtype]
    return f"{'s' if numbers.signed else 'u'}i{4 if numbers.bits == 4 else 8}"


def _to_container(result: Value, numbers: Integers | None) -> Value:
    """Return the integers in torch's container dtype, clamped to their range."""
    if numbers is None or numbers.bits == 8:
        return result
    if numbers.bits == 4:
        return cmp.widened(result, numbers.container)
    lowest, highest = cai.like(result, numbers.low), cai.like(result, numbers.high)
    return cai.minimum(cai.maximum(result, lowest), highest)


def _dtype(value: Any) -> torch.dtype:
    return value.dtype if isinstance(value, torch.Tensor) else cai.dtype(value)


def _as_block(value: Any, axis: int, rank: int) -> Any:
    """Reshape one number, or one per position on an axis, to the rank of a weight."""
    if value is None:
        return None
    shape = [1] * rank
    if isinstance(value, torch.Tensor):
        shape[axis] = value.numel()
        return value.reshape(shape)
    shape[axis] = math.prod(value.type.shape)
    return cai.reshape(value, shape)


def _at_least_1d(x: Value) -> Value:
    return x if x.type.rank else cai.reshape(x, [1])


def _restore_rank(ctx: Ctx, result: Value) -> Value:
    return result if ctx.out.rank else cai.reshape(result, [])
