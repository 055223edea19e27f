"""Lower activations (relu, elu, gelu, hardswish, ...), softmax and log_softmax."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...errors import ConversionError
from ...ir import dialect as cai
from ...ir.composite import Composite
from ...ir.dialect import Value
from ...lowering import Axis, Ctx, Number, case, decomposes, lowers
from ...lowering.cases import T, bf16, c64, f16, f32, i32, u8
from ...torch_compat import aten, remove_autograd_decomposition
from ..pointwise.where_clamp import clamped

_INF, _NAN = float("inf"), float("nan")
_EDGES = f32(10, values=(0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 50.0, -50.0, _NAN, _INF))
_STEEP = f16(8, values=(50.0, -50.0, 20.5, -20.5, 11.5, -11.5, 0.1, -0.1))
_FLOATS: list[T] = [_EDGES, f32(2, 3), f16(5), bf16(5), _STEEP, f32()]
_CASES = [case(t) for t in _FLOATS]
remove_autograd_decomposition(aten.softshrink.default)

_FLAT = 10  # from here on log(1 + exp(x)) is x within the tolerance of float32


@lowers(aten.relu.default, cases=[*_CASES, case(i32(5)), case(u8(3))])
def relu(ctx: Ctx, x: Value) -> Value:
    return cai.relu(x) if cai.dtype(x).is_signed else x


@lowers(
    aten.hardtanh.default,
    cases=[*_CASES, case(f32(6), -0.5, 0.25), case(f16(6), 0, 6), case(i32(6), -2, 3)],
)
def hardtanh(ctx: Ctx, x: Value, min_val: Number, max_val: Number) -> Value:
    return clamped(x, min_val, max_val)


@lowers(
    aten.leaky_relu.default,
    cases=[*_CASES, case(f32(6), 0.3), case(f16(6), 1.5), case(f32(6), -0.2)],
)
def leaky_relu(ctx: Ctx, x: Value, negative_slope: Number) -> Value:
    sloped = cai.mul(x, cai.like(x, negative_slope))
    if isinstance(negative_slope, Value) or not negative_slope:  # 0 times infinity is NaN
        return cai.where(cai.greater(x, cai.like(x, 0)), x, sloped)
    return cai.maximum(x, sloped) if negative_slope <= 1 else cai.minimum(x, sloped)


@decomposes(
    aten.rrelu_with_noise_functional.default,
    cases=[case(f32(6), f32(6), 0.1, 0.4), case(f16(6), f16(6))],
)
def rrelu(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if training:
        raise ConversionError(
            "rrelu draws random slopes in training mode\n  try   call model.eval() before exporting"
        )
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


@lowers(
    aten.elu.default,
    cases=[*_CASES, case(f32(6), 2.0, 1.5, 0.5), case(f16(6), 1.7, 1.05)],
)
def elu(ctx: Ctx, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    exponential = cai.exp(_scaled(x, input_scale))
    factor = alpha * scale  # one number: two would need a barrier between them
    curved = _scaled(cai.sub(exponential, cai.like(x, 1)), factor)
    return cai.where(cai.greater(x, cai.like(x, 0)), _scaled(x, scale), curved)


def _scaled(x: Value, factor: Number) -> Value:
    is_one = not isinstance(factor, Value) and factor == 1
    return x if is_one else cai.mul(x, cai.like(x, factor))


@decomposes(aten.celu.default, cases=[*_CASES, case(f32(6), 0.5)])
def celu(x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    return torch.ops.aten.elu(x, alpha, 1.0, 1.0 / alpha)


@lowers(
    aten.gelu.default,
    cases=[
        # torch's vectorized code returns NaN for gelu(inf), its scalar code inf: inf is left out.
        *(case(t, approximate="none") for t in (f32(9, values=_EDGES.values), *_FLOATS[1:])),
        *(case(t, approximate="tanh") for t in _FLOATS),
    ],
)
def gelu(ctx: Ctx, x: Value, approximate: str) -> Value:
    return cai.gelu(x, approximate)


@lowers(aten.silu.default, cases=[*_CASES, case(c64(4))])
def silu(ctx: Ctx, x: Value) -> Value:
    return cai.silu(x)


@lowers(aten.mish.default, cases=_CASES)
def mish(ctx: Ctx, x: Value) -> Value:
    """Return `x * tanh(softplus(x))` as `x * n / (n + 2)`, where n = e * (e + 2) and e = exp(x)."""
    two = cai.like(x, 2)
    # Guard of the first kind: from here on the quotient is 1, and the square of exp(50) overflows,
    # in float16 that of exp(6).
    highest = 20 if cai.dtype(x).itemsize > 2 else 5
    exponential = cai.exp(cai.minimum(x, cai.like(x, highest)))
    numerator = cai.mul(exponential, cai.add(exponential, two))
    return cai.mul(x, cai.div(numerator, cai.add(numerator, two)))


@lowers(
    aten.softplus.default,
    cases=[*_CASES, case(f32(6, high=30), 0.5, 3), case(_STEEP, 2, 60.0), case(f32(6), -1.5)],
)
def softplus(ctx: Ctx, x: Value, beta: Number, threshold: Number) -> Value:
    """Return `log(1 + exp(beta * x)) / beta` without overflow of the exponential.

    Guard of the first kind, in float16, for 12: the exponential is infinite.
    """
    scaled = _scaled(x, beta)
    curved = cai.sub(cai.relu(scaled), cai.log(cai.sigmoid(cai.abs_(scaled))))
    curved = curved if beta == 1 else cai.div(curved, cai.like(x, beta))
    if threshold >= _FLAT:
        return curved
    return cai.where(cai.greater(scaled, cai.like(x, threshold)), x, curved)


@decomposes(aten.log_sigmoid_forward.default, cases=_CASES)
def log_sigmoid(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.clamp(x, max=0) + torch.log(x.abs().sigmoid()), torch.exp(-x.abs())


@decomposes(aten.softshrink.default, cases=[*_CASES, case(f32(6), 1.25)])
def softshrink(x: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    return x - torch.clamp(x, -lambd, lambd)


@lowers(aten.hardswish.default, cases=[*_CASES, case(f16(2, high=3e4))])
def hardswish(ctx: Ctx, x: Value) -> Value:
    return cai.mul(x, hardsigmoid(ctx, x))


@lowers(aten.hardsigmoid.default, cases=_CASES)
def hardsigmoid(ctx: Ctx, x: Value) -> Value:
    def hard_sigmoid(input: Value) -> Value:
        shifted = clamped(cai.add(input, cai.like(input, 3)), 0, 6)
        return cai.div(shifted, cai.like(input, 6))

    (output,) = ctx.emit(Composite("hard_sigmoid", inputs=("input",)), hard_sigmoid, x)
    return output


# Rows with an infinity, with only -inf, or with NaN; large and equal numbers.
_ROWS = f32(
    6, 3,
    values=(_NAN, 1, 2, _INF, 1, 2, -_INF, 1, 2, -_INF, -_INF, -_INF, 1e4, 1e4, 0, 3e38, -3e38, 0),
)  # fmt: skip
_NORMALIZED = [
    case(f32(2, 5), -1, False),
    case(f32(2, 5), 0, False),
    case(f32(2, 3, 4), 1, False),
    case(_ROWS, 1, False),
    case(f16(2, 300, low=-9, high=9, fixed=True), 1, False),
    case(bf16(2, 3), 1, False),
    case(f32(), 0, False),
    case(f32(), -1, False),
]


def _along(axis: Axis, x: Value, normalize: Callable[[Value], Value]) -> Value:
    """Normalize along an axis; a rank-0 tensor is treated as a row of one element."""
    if x.type.rank:
        return normalize(x)
    return cai.shrink_dims(normalize(cai.expand_dims(x, [0])), [0])


@lowers(aten._softmax.default, ignore=("half_to_float",), cases=_NORMALIZED)
def _softmax(ctx: Ctx, x: Value, dim: Axis) -> Value:
    given = cai.cast(x, ctx.out_dtype)  # the result dtype already reflects `half_to_float`
    return _along(dim, given, lambda row: cai.softmax(row, dim))


@lowers(aten._log_softmax.default, ignore=("half_to_float",), cases=_NORMALIZED)
def _log_softmax(ctx: Ctx, x: Value, dim: Axis) -> Value:
    def log_softmax(input: Value) -> Value:
        x = cai.wide(input)
        shifted = cai.sub(x, cai.reduce_max(x, [dim]))
        total = cai.log(cai.reduce_sum(cai.exp(shifted), [dim]))
        return cai.cast(cai.sub(shifted, total), cai.dtype(input))

    def emit(row: Value) -> Value:
        (output,) = ctx.emit(contract, log_softmax, row)
        return output

    contract = Composite("log_softmax", inputs=("input",), attrs={"axis": int(dim)})
    return _along(dim, cai.cast(x, ctx.out_dtype), emit)
