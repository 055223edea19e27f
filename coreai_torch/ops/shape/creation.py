"""Lower full, empty, arange, linspace and logspace.

The constant folding pass removes calls that depend on constants only; these lowerings handle sizes
and numbers that are dynamic.
"""

from __future__ import annotations

from fractions import Fraction

import torch

from ...ir import dialect as cai
from ...ir import shapes, types
from ...ir.dialect import Dim, Value
from ...ir.removable import barrier
from ...lowering import Ctx, Number, Shape, case, lowers
from ...lowering.cases import b1, c64, f16, f32, i64
from ...torch_compat import aten, linspace_rounds_half_steps

# ctx.out has the dtype; a program has one device and one layout.
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
    return _fill(ctx, ctx.dims(size), fill_value)


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
    return _fill(ctx, ctx.dims(cai.sizes(x)), fill_value)


def _fill(ctx: Ctx, dims: tuple[Dim, ...], fill_value: Number) -> Value:
    return cai.broadcast_to(_scalar(ctx.out_dtype, fill_value), dims)


def _scalar(dtype: torch.dtype, given: Number) -> Value:
    return cai.cast(given, dtype) if isinstance(given, Value) else cai.constant(given, dtype)


@lowers(
    aten.scalar_tensor.default,
    ignore=_PLACEMENT,
    cases=[case(2.5), case(3, dtype=torch.int64), case(True, dtype=torch.bool)],
)
def scalar_tensor(ctx: Ctx, s: Number) -> Value:
    return _scalar(ctx.out_dtype, s)


# The elements are undefined: only a zero-size tensor can be compared with torch's.
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
    """Return zeros, so that results are reproducible."""
    return _fill(ctx, ctx.dims(size), 0)


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
        ctx.refuse("float bounds computed at run time are not supported", "pass integer bounds")
    if all(isinstance(g, Value | int) for g in given):
        count = cai.range_(*(_scalar(torch.int32, g) for g in (start, end, _nonzero_step(step))))
        return cai.cast(count, ctx.out_dtype)
    if not ctx.out_dtype.is_floating_point or isinstance(start, Value) or isinstance(step, Value):
        ctx.refuse("fractional values with a dynamic start or step are not supported")
    indices = cai.range_(cai.i32(0), _steps_to(ctx, start, end, step), cai.i32(1))
    scaled = cai.mul(cai.cast(indices, torch.float32), cai.constant(step, torch.float32))
    return cai.cast(cai.add(scaled, cai.constant(start, torch.float32)), ctx.out_dtype)


def _nonzero_step(step: Number) -> Number:
    """Replace a zero step by 1: the runtime (1.0.0b3) crashes on it, where torch raises."""
    if not isinstance(step, Value):
        return step
    return cai.where(cai.equal(step, cai.i32(0)), cai.i32(1), step)


def _steps_to(ctx: Ctx, start: Number, end: Number, step: Number) -> Value:
    """Return `ceil((end - start) / step)` in integers: a float32 quotient may be off by one."""
    (extent,) = ctx.out.shape
    if extent != types.DYNAMIC:
        return cai.i32(int(extent))
    first, stride = Fraction(start), Fraction(step)
    scale = max(first.denominator, stride.denominator)  # both are powers of two
    if scale > 1024:
        ctx.refuse(
            f"a step of {step} from {start} to a dynamic end is not supported",
            "pass a step like 0.5 or 0.25, or use torch.arange(n) * step",
        )
    span = shapes.sub(shapes.mul(end, scale), int(first * scale))
    unit = int(stride * scale)
    # Python has no ceiling division: ceil(a / b) is -(-a // b).
    count = shapes.sub(0, shapes.floordiv(shapes.sub(0, span), unit))
    return shapes.maximum(count, 0) if isinstance(count, Value) else cai.i32(max(count, 0))


_BOUNDS = [
    case(0, 1, 5),
    case(4.3, 1, 50, dtype=torch.int64),
    case(4.3, 1, 50, dtype=torch.float16, layout=torch.strided, device="cpu", pin_memory=False),
    case(2, 3, 1),
]
_TENSOR_BOUNDS = [
    case(f32(), f32(), 7),
    case(f32(values=(4.3,)), i64(values=(1,)), 50, dtype=torch.float16),
    case(f32(values=(4.3,)), f32(values=(-5.9,)), 50, dtype=torch.int64),
    case(f32(), f32(), 1),
]
_HALF = case(4.3, i64(values=(-9,)), 50, dtype=torch.float16)


@lowers(aten.linspace.default, ignore=_PLACEMENT, cases=_BOUNDS)
@lowers(aten.linspace.Tensor_Tensor, ignore=_PLACEMENT, cases=_TENSOR_BOUNDS)
@lowers(aten.linspace.Tensor_Scalar, ignore=_PLACEMENT, cases=[case(f32(), 2.5, 7)])
@lowers(aten.linspace.Scalar_Tensor, ignore=_PLACEMENT, cases=[case(2.5, f32(), 7), _HALF])
def linspace(ctx: Ctx, start: Number, end: Number, steps: int) -> Value:
    dtype = ctx.out_dtype
    if dtype.is_floating_point or steps == 1:
        half = dtype.is_floating_point and linspace_rounds_half_steps()
        kind = dtype if half else torch.float32
        return cai.cast(_spaced(dtype, start, end, steps, kind), dtype)
    # Integer arithmetic: a float32 quotient may round below the exact integer.
    first, last = (cai.cast(_scalar(dtype, bound), torch.int32) for bound in (start, end))
    count = cai.tensor_constant(torch.arange(steps, dtype=torch.int32), "steps")
    span = cai.i32(steps - 1)
    total = cai.add(cai.mul(first, span), cai.mul(cai.sub(last, first), count))
    return cai.cast(cai.div(total, span), dtype)


@lowers(aten.logspace.default, ignore=_PLACEMENT, cases=[*_BOUNDS, case(0, 1, 5, 2.0)])
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
        # An exponent rounded to float16 would give 8.5625 here, not 8.546875.
        case(0, i64(values=(2,)), 4, 5.0, dtype=torch.float16),
        case(0, i64(values=(2,)), 4, dtype=torch.bfloat16),
    ],
)
def logspace(ctx: Ctx, start: Number, end: Number, steps: int, base: float) -> Value:
    if steps == 1:  # torch does not round the exponent of a single step: 4.3 stays 4.3
        exponents = cai.broadcast_to(_scalar(torch.float32, start), [1])
    else:
        exponents = _spaced(ctx.out_dtype, start, end, steps, torch.float32)
    return cai.cast(cai.pow_(cai.constant(base, torch.float32), exponents), ctx.out_dtype)


def _spaced(dtype: torch.dtype, start: Number, end: Number, steps: int, kind: torch.dtype) -> Value:
    """Return evenly spaced values, computed from the nearer bound, in the precision of `kind`.

    The bounds are first cast to the result's dtype: integers for an integer dtype.
    """
    first, last = (cai.cast(_scalar(dtype, bound), kind) for bound in (start, end))
    if steps == 1:
        return cai.broadcast_to(first, [1])
    index = torch.arange(steps)
    from_start = index < steps // 2
    count = torch.where(from_start, index, steps - 1 - index).to(kind)
    # The barrier rounds the step before the product; the compiler would divide the counts instead.
    step = barrier(cai.div(cai.sub(last, first), cai.like(first, steps - 1)))
    offset = cai.mul(step, cai.tensor_constant(count, "steps"))
    return cai.where(
        cai.tensor_constant(from_start, "steps"), cai.add(first, offset), cai.sub(last, offset)
    )
