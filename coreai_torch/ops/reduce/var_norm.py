"""Lower var, std, vector norms, dist and logsumexp."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...ir import dialect as cai
from ...ir import types
from ...ir.composite import Composite
from ...ir.dialect import Value
from ...lowering import Axes, Ctx, case, decomposes, lowers
from ...lowering.cases import bf16, c64, f16, f32, i64
from ...torch_compat import aten
from ..pointwise.abs_atan2 import plain_distance
from .reductions import average, count, drop_axes, total

_NAN, _INF = float("nan"), float("inf")


def _spread(
    ctx: Ctx,
    x: Value,
    axes: Axes,
    correction: float | None,
    keepdim: bool,
    outputs: tuple[str, ...],
) -> list[Value]:
    """Return the variance (`var`) or its root (`std`), and the mean if `outputs` names it.

    In half precision this is a composite that computes in float32: the square of a deviation of
    256 is infinite in float16.
    """

    def body(input: Value) -> list[Value]:
        if len(outputs) == 1 and not cai.is_complex(input):
            distance, *_ = _centred(input, axes)
            variance, centre = _mean_square(input, distance, axes, correction), distance
        else:
            variance, centre = _variance_mean(input, axes, correction)
        # Take the root before narrowing: a float16 variance overflows at a deviation of 300.
        spread = cai.sqrt(variance) if outputs[0] == "std" else variance
        found = [spread, centre][: len(outputs)]
        # The dtypes differ if the mean is complex.
        results = ctx.outs if len(outputs) > 1 else [ctx.out]
        dtypes = [types.dtype_of(result_type) for result_type in results]
        cast = [cai.cast(v, dtype) for v, dtype in zip(found, dtypes, strict=True)]
        return [drop_axes(v, axes, keepdim) for v in cast]

    if cai.is_complex(x) or cai.dtype(x).itemsize > 2:
        return body(x)
    attrs = {
        "axes": list(axes),
        "correction": 1.0 if correction is None else float(correction),
        "keep_dim": keepdim,
    }
    contract = Composite(outputs[0], inputs=("input",), outputs=outputs, attrs=attrs)
    return ctx.emit(contract, body, x)


def _variance_mean(x: Value, axes: Sequence[int], correction: float | None) -> tuple[Value, Value]:
    """Return the variance and mean in float32, with the reduced axes kept.

    The variance of complex numbers is the sum of the variances of their parts.
    """
    if cai.is_complex(x):
        parts = cai.real_part(x), cai.imaginary_part(x)
        (first, real), (second, imaginary) = (_variance_mean(p, axes, correction) for p in parts)
        return cai.add(first, second), cai.create_complex(real, imaginary)
    distance, centre, residual = _centred(x, axes)
    return _mean_square(x, distance, axes, correction), cai.add(centre, residual)


def _centred(x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Return the distances from the mean, the mean, and what it must be corrected by.

    Guard of the first kind: the float32 mean of 10000 +- 0.01 has a rounding error of 0.001, a
    tenth of the deviation. Therefore the mean of the differences is subtracted once more.
    """
    wide = cai.cast(x, torch.float32)
    centre = average(wide, axes)
    distance = cai.sub(wide, centre)
    residual = average(distance, axes)
    return cai.sub(distance, residual), centre, residual


def _mean_square(x: Value, distance: Value, axes: Sequence[int], correction: float | None) -> Value:
    degrees_of_freedom = cai.sub(
        count(x, axes), cai.constant(1.0 if correction is None else correction, torch.float32)
    )
    # Without degrees of freedom torch divides by zero: NaN for one value, infinity for more.
    divisor = cai.maximum(degrees_of_freedom, cai.like(degrees_of_freedom, 0.0))
    return cai.div(total(cai.mul(distance, distance), axes), divisor)


_SPREADS = [
    case(f32(2, 3, 4), [1]),
    case(f32(2, 3, 4), [-1, 0], correction=0, keepdim=True),
    case(f32(2, 3)),
    case(f32(2, 3), [], correction=0.5),
    case(f32(), correction=0),
    case(f32(3, 4, low=9999.99, high=10000.01), [1]),
    case(f32(2, 3, values=(1.0, _NAN, 2.0, 1.0, 1.0, 1.0)), [1]),
    case(f16(3, 4, low=-400, high=400), [0]),
    case(bf16(3, 4), [1]),
    case(c64(2, 3), [1]),
]


@lowers(aten.var.correction, cases=_SPREADS)
def var(ctx: Ctx, x: Value, dim: Axes, correction: float | None, keepdim: bool) -> Value:
    (found,) = _spread(ctx, x, dim, correction, keepdim, ("var",))
    return found


@lowers(
    aten.std.correction,
    cases=[
        *_SPREADS,
        case(f16(2, 4, low=-60000, high=60000), [1]),
        case(f32(2, 3, values=(1.0, _NAN, 2.0, _INF, 1.0, 1.0)), [1]),
        case(f32(2, 1)),
    ],
)
def std(ctx: Ctx, x: Value, dim: Axes, correction: float | None, keepdim: bool) -> Value:
    (found,) = _spread(ctx, x, dim, correction, keepdim, ("std",))
    return found


@lowers(aten.var_mean.correction, cases=_SPREADS)
def var_mean(ctx: Ctx, x: Value, dim: Axes, correction: float | None, keepdim: bool) -> list[Value]:
    return _spread(ctx, x, dim, correction, keepdim, ("var", "mean"))


@lowers(aten.std_mean.correction, cases=_SPREADS)
def std_mean(ctx: Ctx, x: Value, dim: Axes, correction: float | None, keepdim: bool) -> list[Value]:
    return _spread(ctx, x, dim, correction, keepdim, ("std", "mean"))


def _norm(x: Value, order: float, axes: Sequence[int]) -> Value:
    if order == 0:
        return total(cai.raw_cast(cai.not_equal(x, cai.like(x, 0)), torch.float32), axes)
    if order == 2:
        return cai.sqrt(total(cai.mul(x, x), axes))
    magnitude = cai.abs_(x)
    if order == 1:
        return total(magnitude, axes)
    if math.isinf(order):
        return cai.reduce_max(magnitude, axes) if order > 0 else cai.reduce_min(magnitude, axes)
    powers = total(cai.pow_(magnitude, cai.like(x, order)), axes)
    return cai.pow_(powers, cai.like(x, 1 / order))


_ORDERS = (0, 1, 2, 3, 0.5, -1, -2.5, _INF, -_INF)


@lowers(
    aten.linalg_vector_norm.default,
    ignore=("dtype",),  # ctx.out has it
    cases=[
        *(case(f32(3, 4), order, [1]) for order in _ORDERS),
        *(case(f32(2, 3, values=(0.0, 1.0, -2.0, _NAN, 0.0, 1.0)), o, [1]) for o in _ORDERS),
        *(case(f32(), order) for order in (0, 2, 3, _INF)),
        case(f32(2, 3, 4), 2, [-1, 0], True),
        case(f32(2, 3, 4)),
        case(f32(2, 3), 2, []),
        case(f32(100, 100), 2, None),
        case(f16(3, values=(300.0, 400.0, 0.0)), 2, [0]),
        case(bf16(3, 4), 3, [1]),
        case(f16(2, 3), 2, [1], dtype=torch.float32),
        case(f32(2, 0), 2, [1], static_only="a zero-size operand"),
        *(case(c64(2, 3), order, [1]) for order in (0, 1, 2, 3, _INF)),
    ],
)
def linalg_vector_norm(ctx: Ctx, x: Value, ord: float, dim: Axes, keepdim: bool) -> Value:
    if cai.is_complex(x):
        x = plain_distance(cai.real_part(x), cai.imaginary_part(x))

    def vector_norm(input: Value) -> Value:
        norm = _norm(cai.cast(input, torch.float32), float(ord), dim)
        return drop_axes(cai.cast(norm, cai.dtype(input)), dim, keepdim)

    attrs = {"ord": float(ord), "axes": list(dim), "keep_dim": keepdim}
    contract = Composite("linalg_vector_norm", inputs=("input",), attrs=attrs)
    (output,) = ctx.emit(contract, vector_norm, cai.cast(x, ctx.out_dtype))
    return output


@decomposes(
    aten.dist.default,
    cases=[case(f32(2, 3), f32(3)), case(f32(2, 3), f32(2, 3), 1), case(f16(3), f16(3), _INF)],
)
def dist(self: torch.Tensor, other: torch.Tensor, p: float = 2) -> torch.Tensor:
    return torch.linalg.vector_norm(self - other, p)


def log_sum_exp(x: Value, axes: Sequence[int]) -> Value:
    """Return log(sum(exp(x))), axes kept; the maximum is subtracted first.

    That of scores that are all masked is finite, as inf - inf is NaN.
    """
    largest = torch.finfo(cai.dtype(x)).max
    peak = cai.reduce_max(x, axes)
    shift = cai.minimum(cai.maximum(peak, cai.like(peak, -largest)), cai.like(peak, largest))
    return cai.add(cai.log(total(cai.exp(cai.sub(x, shift)), axes)), shift)


@lowers(
    aten.logsumexp.default,
    cases=[
        case(f32(2, 3), [1]),
        case(f32(2, 3, 4), [-1, 0], True),
        case(f32(), [0]),
        case(f16(2, 4, values=(50.0, -50.0, 49.0, 50.0, -50.0, -50.0, -49.0, -50.0)), [1]),
        case(f32(2, 2, values=(1000.0, 999.0, -1000.0, -1001.0)), [1]),
        case(f32(4, 2, values=(-_INF, -_INF, _INF, 1.0, _INF, -_INF, _NAN, 1.0)), [1]),
        case(bf16(2, 3), [0]),
        case(i64(2, 3), [1]),
        case(f32(2, 0), [1], static_only="a zero-size operand"),
    ],
)
def logsumexp(ctx: Ctx, x: Value, dim: Axes, keepdim: bool) -> Value:
    def wide(input: Value) -> Value:
        found = log_sum_exp(cai.cast(input, torch.float32), dim)
        return drop_axes(cai.cast(found, ctx.out_dtype), dim, keepdim)

    given = cai.cast(x, ctx.out_dtype)
    if ctx.out_dtype == torch.float16 and not _sums_ones(given, dim):
        attrs = {"axes": list(dim), "keep_dim": keepdim}
        (found,) = ctx.emit(Composite("logsumexp", inputs=("input",), attrs=attrs), wide, given)
        return found
    return drop_axes(log_sum_exp(given, dim), dim, keepdim)


def _sums_ones(x: Value, axes: Sequence[int]) -> bool:
    """Return whether float16 can hold a one for each element along these axes."""
    extents = [int(x.type.shape[a]) for a in axes if not x.type.is_dynamic_dim(a)]
    return len(extents) == len(axes) and math.prod(extents) < torch.finfo(torch.float16).max
