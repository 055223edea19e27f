"""Tensors made of numbers: filled, counted, or not filled at all.

What depends on nothing but constants is folded before it gets here; these serve sizes and numbers
that are known only at run time.
"""

from __future__ import annotations

from fractions import Fraction

import torch

from ...ir import dialect as cai
from ...ir import shapes, types
from ...ir.dialect import Dim, Value
from ...ir.reassociation import barrier
from ...lowering import Ctx, Number, Shape, case, lowers
from ...lowering.cases import b1, c64, f16, f32, i64
from ...torch_compat import aten

# The dtype is in ctx.out; a program has one device and one layout.
_PLACEMENT = ("dtype", "layout", "device", "pin_memory")


@lowers(
    aten.full.default,
    ignore=_PLACEMENT,
    cases=[
        case([2, 3], 1.5),
        case([2], 7, dtype=torch.float16, layout=torch.strided, device="cpu", pin_memory=False),
        case([], True),
    ],
)
def full(ctx: Ctx, size: Shape, fill_value: Number) -> Value:
    return _filled(ctx, ctx.dims(size), fill_value)


@lowers(
    aten.full_like.default,
    ignore=(*_PLACEMENT, "memory_format"),
    cases=[
        case(f32(2, 3), 1.5),
        case(f32(2, 3), 7, dtype=torch.int64, memory_format=torch.preserve_format),
        case(i64(2), 2.9),
        case(b1(2), 2),
        case(f16(), float("-inf")),
        case(c64(2), 2.5),
    ],
)
def full_like(ctx: Ctx, x: Value, fill_value: Number) -> Value:
    return _filled(ctx, ctx.dims(cai.sizes(x)), fill_value)


def _filled(ctx: Ctx, dims: tuple[Dim, ...], fill_value: Number) -> Value:
    return cai.broadcast_to(_as(ctx.out_dtype, fill_value), dims)


def _as(dtype: torch.dtype, given: Number) -> Value:
    return cai.cast(given, dtype) if isinstance(given, Value) else cai.constant(given, dtype)


@lowers(
    aten.scalar_tensor.default,
    ignore=_PLACEMENT,
    cases=[case(2.5), case(3, dtype=torch.int64), case(True, dtype=torch.bool)],
)
def scalar_tensor(ctx: Ctx, s: Number) -> Value:
    return _as(ctx.out_dtype, s)


# What these hold is anyone's guess: only an empty one can be compared with torch's.
@lowers(
    aten.empty.memory_format,
    ignore=(*_PLACEMENT, "memory_format"),
    cases=[case([2, 0], dtype=torch.int32, memory_format=torch.contiguous_format)],
)
@lowers(aten.empty_strided.default, ignore=(*_PLACEMENT, "stride"), cases=[case([0, 2], [2, 1])])
@lowers(
    aten.empty_permuted.default,
    ignore=(*_PLACEMENT, "physical_layout"),
    cases=[case([2, 0], [1, 0])],
)
@lowers(
    aten.new_empty_strided.default,
    ignore=(*_PLACEMENT, "self", "stride"),
    cases=[case(f32(2), [0], [1])],
)
def empty(ctx: Ctx, size: Shape) -> Value:
    """Zeros, so that a program gives the same each time."""
    return _filled(ctx, ctx.dims(size), 0)


@lowers(
    aten.arange.start_step,
    ignore=_PLACEMENT,
    cases=[
        case(0, 5),
        case(5, 0, -2),
        case(0.5, 3, 0.75),
        case(0, 4, 1, dtype=torch.float16),
    ],
)
def arange(ctx: Ctx, start: Number, end: Number, step: Number) -> Value:
    given = [start, end, step]
    if any(isinstance(g, Value) and cai.is_float(g) for g in given):
        ctx.refuse("bounds that are computed at run time as floats", "whole numbers for bounds")
    if all(isinstance(g, Value | int) for g in given):
        count = cai.range_(*(_as(torch.int32, g) for g in (start, end, _nonzero(step))))
        return cai.cast(count, ctx.out_dtype)
    if not ctx.out_dtype.is_floating_point or isinstance(start, Value) or isinstance(step, Value):
        ctx.refuse("fractions between bounds that are known only at run time")
    places = cai.range_(cai.i32(0), _steps_to(ctx, start, end, step), cai.i32(1))
    scaled = cai.mul(cai.cast(places, torch.float32), cai.constant(step, torch.float32))
    return cai.cast(cai.add(scaled, cai.constant(start, torch.float32)), ctx.out_dtype)


def _nonzero(step: Number) -> Number:
    """The run time dies of a step of zero, where torch would raise."""
    if not isinstance(step, Value):
        return step
    return cai.where(cai.equal(step, cai.i32(0)), cai.i32(1), step)


def _steps_to(ctx: Ctx, start: Number, end: Number, step: Number) -> Value:
    """`ceil((end - start) / step)` in whole numbers: a float32 quotient may be one off."""
    (extent,) = ctx.out.shape
    if extent != types.DYNAMIC:
        return cai.i32(int(extent))
    first, stride = Fraction(start), Fraction(step)
    scale = max(first.denominator, stride.denominator)  # both are powers of two
    if scale > 1024:
        ctx.refuse(
            f"a step of {step} from {start} up to a size that is known only at run time",
            "a step like 0.5 or 0.25, or torch.arange(n) * step",
        )
    span = shapes.sub(shapes.mul(end, scale), int(first * scale))
    unit = int(stride * scale)
    # ceil(a / b) is -(-a // b).
    count = shapes.sub(0, shapes.floordiv(shapes.sub(0, span), unit))
    return shapes.maximum(count, 0) if isinstance(count, Value) else cai.i32(max(count, 0))


_BETWEEN = [
    case(0, 1, 5),
    case(4.3, 1, 50, dtype=torch.int64),
    case(4.3, 1, 50, dtype=torch.float16, layout=torch.strided, device="cpu", pin_memory=False),
    case(2, 3, 1),
]
_BETWEEN_TENSORS = [
    case(f32(), f32(), 7),
    case(f32(values=(4.3,)), i64(values=(1,)), 50, dtype=torch.float16),
    case(f32(values=(4.3,)), f32(values=(-5.9,)), 50, dtype=torch.int64),
    case(f32(), f32(), 1),
]
_HALF = case(4.3, i64(values=(-9,)), 50, dtype=torch.float16)


@lowers(aten.linspace.default, ignore=_PLACEMENT, cases=_BETWEEN)
@lowers(aten.linspace.Tensor_Tensor, ignore=_PLACEMENT, cases=_BETWEEN_TENSORS)
@lowers(aten.linspace.Tensor_Scalar, ignore=_PLACEMENT, cases=[case(f32(), 2.5, 7)])
@lowers(aten.linspace.Scalar_Tensor, ignore=_PLACEMENT, cases=[case(2.5, f32(), 7), _HALF])
def linspace(ctx: Ctx, start: Number, end: Number, steps: int) -> Value:
    dtype = ctx.out_dtype
    if dtype.is_floating_point or steps == 1:
        kind = dtype if dtype.is_floating_point else torch.float32
        return cai.cast(_spaced(dtype, start, end, steps, kind), dtype)
    # In whole numbers: a float32 quotient may fall short of the one it should reach.
    first, last = (cai.cast(_as(dtype, bound), torch.int32) for bound in (start, end))
    count = cai.tensor_constant(torch.arange(steps, dtype=torch.int32), "steps")
    span = cai.i32(steps - 1)
    total = cai.add(cai.mul(first, span), cai.mul(cai.sub(last, first), count))
    return cai.cast(cai.div(total, span), dtype)


@lowers(aten.logspace.default, ignore=_PLACEMENT, cases=[*_BETWEEN, case(0, 1, 5, 2.0)])
@lowers(aten.logspace.Tensor_Tensor, ignore=_PLACEMENT, cases=[case(f32(), f32(), 7, 3.0)])
@lowers(
    aten.logspace.Tensor_Scalar,
    ignore=_PLACEMENT,
    cases=[
        case(f32(), 1.5, 7, 0.5),
        case(f32(values=(4.3,)), 1, 1, dtype=torch.bfloat16),
        case(f32(values=(4.3,)), 1, 1, dtype=torch.int64),
    ],
)
@lowers(
    aten.logspace.Scalar_Tensor,
    ignore=_PLACEMENT,
    cases=[
        case(1.5, f32(), 7, 2.0),
        # An exponent that is rounded to float16 gives 8.5625 here, not 8.546875.
        case(0, i64(values=(2,)), 4, 5.0, dtype=torch.float16),
        case(0, i64(values=(2,)), 4, dtype=torch.bfloat16),
    ],
)
def logspace(ctx: Ctx, start: Number, end: Number, steps: int, base: float) -> Value:
    if steps == 1:  # of which torch takes the exponent as it is given: 4.3 is not rounded
        exponents = cai.broadcast_to(_as(torch.float32, start), [1])
    else:
        exponents = _spaced(ctx.out_dtype, start, end, steps, torch.float32)
    return cai.cast(cai.pow_(cai.constant(base, torch.float32), exponents), ctx.out_dtype)


def _spaced(dtype: torch.dtype, start: Number, end: Number, steps: int, kind: torch.dtype) -> Value:
    """Evenly from start to end, counted from whichever is nearer, in the precision of `kind`.

    The bounds are taken in the result's dtype first: whole for an integer one.
    """
    first, last = (cai.cast(_as(dtype, bound), kind) for bound in (start, end))
    if steps == 1:
        return cai.broadcast_to(first, [1])
    place = torch.arange(steps)
    near = place < steps // 2
    count = torch.where(near, place, steps - 1 - place).to(kind)
    # The step is rounded before it is multiplied; the compiler would divide the counts instead.
    step = barrier(cai.div(cai.sub(last, first), cai.like(first, steps - 1)))
    offset = cai.mul(step, cai.tensor_constant(count, "steps"))
    return cai.where(
        cai.tensor_constant(near, "steps"), cai.add(first, offset), cai.sub(last, offset)
    )
