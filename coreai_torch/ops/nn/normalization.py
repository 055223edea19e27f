"""Lower batch, layer, group, instance and RMS norm, each to a composite.

Statistics and eps are float32 whatever the dtype of the operands: in float16 an eps of 1e-8 and a
running variance of 1e-8 round to zero, and the quotient is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir import shapes, types
from ...ir.composite import Composite
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, Shape, case, lowers
from ...lowering.cases import bf16, f16, f32
from ...torch_compat import aten
from ..reduce.reductions import average

# Means of more elements are means of equal runs; the lengths of the runs, the best first.
_LONGEST_RUN = 64
_RUNS = sorted(range(8, _LONGEST_RUN + 1), key=lambda n: abs(n - 32))


def _wide(x: Value) -> Value:
    return cai.cast(x, torch.float32)


def _full(x: Value, number: float, dims: Sequence[Dim]) -> Value:
    """Return a tensor filled with a number, in the dtype of `x`, for an absent weight or bias."""
    if shapes.is_static(dims):
        one = torch.full((), number, dtype=cai.dtype(x))
        return cai.tensor_constant(one.expand([int(d) for d in dims if isinstance(d, int)]))
    return cai.broadcast_to(cai.like(x, number), dims)


def _affine(
    x: Value, weight: Value | None, bias: Value | None, dims: Sequence[Dim]
) -> tuple[Value, Value]:
    """Return weight and bias; ones and zeros if absent, because the composite requires both."""
    gamma = _full(x, 1.0, dims) if weight is None else weight
    return gamma, _full(x, 0.0, dims) if bias is None else bias


def _moments(x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return the mean and the biased variance; the reduced axes are kept at size 1."""
    mean = _mean(x, axes)
    centred = cai.sub(x, mean)
    return mean, _mean(cai.mul(centred, centred), axes)


def _mean(x: Value, axes: Sequence[int]) -> Value:
    """Return the mean, one axis after the other and in short runs.

    Guard of the first kind: the runtime adds the elements one by one. If their mean is 100 times
    their deviation, the layer norm of 768 elements is then wrong by 1.3e-4, that of
    8,192 by 2.9e-4 (eager 1.1e-5).
    """
    for axis in reversed(axes):
        x = _axis_mean(x, axis)
    return x


def _axis_mean(x: Value, axis: int) -> Value:
    runs = _in_runs(x, axis)
    if runs is None:
        return average(x, [axis])
    means = cai.reduce_mean(runs, [axis + 1])
    return _axis_mean(cai.shrink_dims(means, [axis + 1]), axis)


def _in_runs(x: Value, axis: int) -> Value | None:
    """Split a long axis into two, the number of runs and their length; None for other axes."""
    extent = x.type.shape[axis]
    run = next((n for n in _RUNS if extent % n == 0), 0) if extent > _LONGEST_RUN else 0
    if not run:
        return None
    dims = list(cai.sizes(x))
    dims[axis : axis + 1] = [extent // run, run]
    return cai.reshape(x, dims)


def _rstd(variance: Value, eps: float) -> Value:
    return cai.rsqrt(cai.add(variance, cai.like(variance, eps)))


def _normalized(x: Value, axes: Sequence[int], eps: float) -> Value:
    runs = _in_runs(x, axes[0]) if len(axes) == 1 else None
    if runs is not None:  # once for both moments: two ops fewer
        return cai.reshape(_normalized(runs, [axes[0], axes[0] + 1], eps), cai.sizes(x))
    mean, variance = _moments(x, axes)
    return cai.mul(cai.sub(x, mean), _rstd(variance, eps))


def _per_channel(vector: Value, rank: int) -> Value:
    """Return a per-channel vector in float32, shaped to broadcast with `[N, C, ...]`."""
    return cai.expand_dims(_wide(vector), [0, *range(2, rank)])


def _batch_norm(
    ctx: Ctx,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    eps: float,
) -> Value:
    rank = x.type.rank

    def body(input: Value, gamma: Value, beta: Value, mean: Value, variance: Value) -> Value:
        scale = cai.mul(_wide(gamma), _rstd(_wide(variance), eps))
        centred = cai.sub(_wide(input), _per_channel(mean, rank))
        scaled = cai.mul(centred, _per_channel(scale, rank))
        return cai.cast(cai.add(scaled, _per_channel(beta, rank)), cai.dtype(input))

    contract = Composite(
        "batch_norm", inputs=("input", "gamma", "beta", "mean", "variance"), attrs={"eps": eps}
    )
    moments = [
        _float32_operand(ctx, "running_mean", mean),
        _float32_operand(ctx, "running_var", variance),
    ]
    affine = _affine(moments[0], weight, bias, [cai.size(x, 1)])
    scales = [_float32_operand(ctx, n, v) for n, v in zip(("weight", "bias"), affine, strict=True)]
    (output,) = ctx.emit(contract, body, x, *scales, *moments)
    return output


def _float32_operand(ctx: Ctx, name: str, value: Value) -> Value:
    """Return an operand in float32, even if the input is narrower.

    The rewrite pipeline (coreai-core 1.0.0b3) fuses a batch norm whose operands share one dtype
    into the preceding convolution, in that dtype: a float16 variance of 1e-5 then gives NaN. A
    float16 constant that is cast when the program is loaded flushes subnormal values, all below
    6e-5, to zero.
    """
    if cai.dtype(value) == torch.float32:
        return value
    known = ctx.known(name)
    return _wide(value) if known is None else cai.tensor_constant(known.float(), name)


_VECTOR = f32(3)
_RUNNING = (f32(3), f32(3, low=0.1))
_BATCH_NORM = [
    case(f32(2, 3, 4, 5), _VECTOR, _VECTOR, *_RUNNING, 0.1, 1e-5),
    case(f32(2, 3), None, None, *_RUNNING, 0.1, 1e-3),
    case(f32(2, 3, 4), _VECTOR, None, *_RUNNING, 0.1, 1e-5),
    case(f32(2, 3, 2, 2, 2), None, _VECTOR, *_RUNNING, 0.1, 0.5),
    case(f16(2, 3, 4), f16(3), f16(3), f16(3), f16(3, low=0.1), 0.1, 1e-5),
]


def _with_training_flag(training: bool, cases: Sequence[Any], *rest: Any) -> list[Any]:
    """Return the same cases for overloads with a `training` argument."""
    return [case(*c.args[:5], training, *c.args[5:], *rest) for c in cases]


def _batch_moments(x: Value) -> tuple[Value, Value]:
    others = [axis for axis in range(x.type.rank) if axis != 1]
    mean, variance = _moments(_wide(x), others)
    return cai.shrink_dims(mean, others), cai.shrink_dims(variance, others)


def _statistic(ctx: Ctx, result: int, value: Value) -> Value | None:
    """Return the mean or reciprocal deviation in the dtype and shape of that result."""
    if not ctx.uses(result):
        return None
    result_type = ctx.outs[result]
    sizes = [cai.size(value, i) for i in range(result_type.rank)]
    return cai.reshape(cai.cast(value, types.dtype_of(result_type)), sizes)


@lowers(aten._native_batch_norm_legit_no_training.default, ignore=("momentum",), cases=_BATCH_NORM)
@lowers(
    aten._native_batch_norm_legit_functional.default,
    ignore=("momentum",),
    cases=_with_training_flag(False, _BATCH_NORM[:2]),
)
@lowers(
    aten.native_batch_norm.default,
    ignore=("momentum",),  # it updates the running statistics, which do not change here
    cases=_with_training_flag(False, _BATCH_NORM),
)
def native_batch_norm(
    ctx: Ctx,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    eps: float,
    **training: bool,
) -> list[Any]:
    if running_mean is None or running_var is None:
        found: list[Any] = native_batch_norm_no_stats(ctx, x, weight, bias, eps)
        return found
    if any(training.values()):
        _refuse_training(ctx, "batch")
    output = _batch_norm(ctx, x, weight, bias, running_mean, running_var, eps)
    # Export declares float32 statistics for a float16 batch, whatever the buffers are.
    statistics = list(enumerate((running_mean, running_var), 3))[: len(ctx.outs) - 3]
    given = [_statistic(ctx, result, value) for result, value in statistics]
    return [output, torch.empty(0), torch.empty(0), *given]


@lowers(
    aten._native_batch_norm_legit.no_stats,
    ignore=("training", "momentum"),  # without running statistics the batch statistics are used
    cases=[
        case(f32(2, 3, 4, 4), _VECTOR, _VECTOR, True, 0.1, 1e-5),
        case(f32(4, 3), None, None, True, 0.1, 1e-3),
        case(f16(4, 3, 2), f16(3), None, True, 0.1, 1e-5),
    ],
)
def native_batch_norm_no_stats(
    ctx: Ctx, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> list[Any]:
    mean, variance = _batch_moments(x)
    output = _batch_norm(ctx, x, weight, bias, mean, variance, eps)
    return [output, _statistic(ctx, 1, mean), _statistic(ctx, 2, _rstd(variance, eps))]


def _refuse_training(ctx: Ctx, kind: str) -> None:
    ctx.refuse(
        f"{kind} norm in training mode updates its running statistics, which is not supported",
        "call model.eval() before exporting",
    )


@lowers(
    aten.instance_norm.default,
    ignore=("momentum", "cudnn_enabled"),
    cases=[
        case(f32(2, 3, 4, 5), _VECTOR, _VECTOR, None, None, True, 0.1, 1e-5, True),
        case(f32(2, 3, 6), None, None, None, None, True, 0.1, 1e-2, False),
        case(f32(2, 3, 4, 2, 2), _VECTOR, None, None, None, True, 0.1, 1e-5, True),
        case(f32(1, 2, 500, 400, low=2, high=4), None, None, None, None, True, 0.1, 1e-5, True),
        case(f16(2, 3, 8, high=9), f16(3), f16(3), None, None, True, 0.1, 1e-5, True),
        *_with_training_flag(False, _BATCH_NORM[:1], True),
    ],
)
def instance_norm(
    ctx: Ctx,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    eps: float,
) -> Value:
    if running_mean is not None and running_var is not None:
        if use_input_stats:
            _refuse_training(ctx, "instance")
        return _batch_norm(ctx, x, weight, bias, running_mean, running_var, eps)
    rank = x.type.rank

    def body(input: Value, gamma: Value, beta: Value) -> Value:
        normal = _normalized(_wide(input), range(2, rank), eps)
        scaled = cai.mul(normal, _per_channel(gamma, rank))
        return cai.cast(cai.add(scaled, _per_channel(beta, rank)), cai.dtype(input))

    contract = Composite("instance_norm", inputs=("input", "gamma", "beta"), attrs={"eps": eps})
    operands = _affine(x, weight, bias, [cai.size(x, 1)])
    (output,) = ctx.emit(contract, body, x, *operands)
    return output


@lowers(
    aten.native_layer_norm.default,
    cases=[
        case(f32(2, 3, 4), [4], f32(4), f32(4), 1e-5),
        case(f32(2, 3, 4), [3, 4], f32(3, 4), f32(3, 4), 1e-5),
        case(f32(2, 5, 4), [4], None, f32(4), 1e-3),
        case(f32(4), [4], f32(4), None, 1e-5),
        case(f16(2, 64, low=90, high=110), [64], None, None, 1e-5),
        case(f16(2, 4, high=1e-4, low=0), [4], f16(4), f16(4), 1e-12),
        case(bf16(2, 4), [4], bf16(4), bf16(4), 1e-5),
    ],
)
def native_layer_norm(
    ctx: Ctx,
    x: Value,
    normalized_shape: Shape,
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> list[Any]:
    rank = x.type.rank
    axes = list(range(rank - len(normalized_shape), rank))

    def body(input: Value, gamma: Value, beta: Value) -> Value:
        normal = _normalized(_wide(input), axes, eps)
        return cai.cast(cai.add(cai.mul(normal, _wide(gamma)), _wide(beta)), cai.dtype(input))

    contract = Composite(
        "layer_norm", inputs=("input", "gamma", "beta"), attrs={"axes": axes, "eps": eps}
    )
    (output,) = ctx.emit(contract, body, x, *_affine(x, weight, bias, normalized_shape))
    mean, rstd = _saved_statistics(ctx, _wide(x), axes, eps)
    return [output, mean, rstd]


def _saved_statistics(ctx: Ctx, x: Value, axes: Sequence[int], eps: float) -> list[Value | None]:
    """Return mean and reciprocal deviation, or None if they are unused."""
    if not (ctx.uses(1) or ctx.uses(2)):
        return [None, None]
    mean, variance = _moments(x, axes)
    return [_statistic(ctx, 1, mean), _statistic(ctx, 2, _rstd(variance, eps))]


@lowers(
    aten.native_group_norm.default,
    ignore=("N", "HxW"),  # sizes of the operand, read from its type
    cases=[
        case(f32(2, 4, 5), f32(4), f32(4), 2, 4, 5, 2, 1e-5),
        case(f32(2, 6, 2, 3), None, None, 2, 6, 6, 3, 1e-3),
        case(f32(3, 4), f32(4), None, 3, 4, 1, 1, 1e-5),
        case(f32(1, 4, 2, 2, 2), None, f32(4), 1, 4, 8, 4, 1e-5),
        case(f16(2, 4, 8, low=90, high=110), f16(4), f16(4), 2, 4, 8, 2, 1e-5),
        case(bf16(2, 4, 6), bf16(4), bf16(4), 2, 4, 6, 2, 1e-5),
        case(f32(1, 4, 400, 300, low=2, high=4), None, None, 1, 4, 120_000, 2, 1e-5),
    ],
)
def native_group_norm(
    ctx: Ctx,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    C: int,  # noqa: N803  the schema's name
    group: int,
    eps: float,
) -> list[Any]:
    rank = x.type.rank

    def body(input: Value, weight: Value, bias: Value) -> Value:
        normal = _normalized(_grouped(_wide(input), group), [2, 3], eps)
        scaled = cai.mul(cai.reshape(normal, cai.sizes(input)), _per_channel(weight, rank))
        return cai.cast(cai.add(scaled, _per_channel(bias, rank)), cai.dtype(input))

    contract = Composite(
        "group_norm",
        inputs=("input", "weight", "bias"),
        attrs={"num_groups": group, "num_channels": C, "eps": eps},
    )
    (output,) = ctx.emit(contract, body, x, *_affine(x, weight, bias, [C]))
    return [output, *_saved_statistics(ctx, _grouped(_wide(x), group), [2, 3], eps)]


def _grouped(x: Value, groups: int) -> Value:
    """Reshape to `[N, groups, rows, elements of a row]`.

    Two axes, because a sum over a dynamic axis has as many stages as it has axes.
    """
    batch, channels, *spatial = cai.sizes(x)
    *rows, row = [shapes.floordiv(channels, groups), *spatial]
    return cai.reshape(x, [batch, groups, shapes.product(rows), row])


@lowers(
    aten.rms_norm.default,
    cases=[
        case(f32(2, 3, 4), [4], f32(4), 1e-5),
        case(f32(2, 3, 4), [4]),
        case(f32(2, 3, 4), [3, 4], f32(3, 4), 1e-3),
        case(f16(2, 4, values=(300.0, -280.0, 310.0, 2.0)), [4], f16(4), 1e-6),
        case(f16(2, 4, low=-1e-4, high=1e-4), [4]),
        case(bf16(2, 4), [4], bf16(4)),
        case(f16(2, 4), [4], f32(4)),
    ],
)
def rms_norm(
    ctx: Ctx, x: Value, normalized_shape: Shape, weight: Value | None, eps: float | None
) -> Value:
    if cai.is_complex(x):
        ctx.refuse(
            "the norm of complex numbers is not supported", "pass their real and imaginary parts"
        )
    rank = x.type.rank
    axes = list(range(rank - len(normalized_shape), rank))
    epsilon = torch.finfo(torch.float32).eps if eps is None else eps

    def body(input: Value, scale: Value) -> Value:
        wide = _wide(input)
        power = average(cai.mul(wide, wide), axes)
        scaled = cai.mul(cai.mul(wide, _rstd(power, epsilon)), _wide(scale))
        return cai.cast(scaled, ctx.out_dtype)

    scale = _full(x, 1.0, normalized_shape) if weight is None else weight
    if len(axes) > 1:  # the composite covers the last axis only
        return body(x, scale)
    contract = Composite("rms_norm", inputs=("input", "scale"), attrs={"axes": -1, "eps": epsilon})
    # Torch rounds once, after the scale; the composite does so if the scale is float32.
    (output,) = ctx.emit(contract, body, x, _wide(scale))
    return output
