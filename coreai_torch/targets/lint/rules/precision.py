"""Half precision: overflow, underflow and functions that lose their digits."""

from __future__ import annotations

import torch

from ....asset.reading import Op
from ..rule import Rule, ops_where
from ..view import FLOATS, HALF, FunctionView, kind

_SMALLEST_NORMAL = 6.1e-5  # of float16
_LOWEST_MASK = -4e4
_OFFSET = 3  # hardswish is x * clamp(x + 3, 0, 6) / 6
_COMPOSITE = "hard_sigmoid"  # clamp(x + 3, 0, 6) / 6
_CLAMPS = ("minimum", "maximum", "relu")


def _is_naive_logarithm(view: FunctionView, op: Op) -> bool:
    """Return whether an op is log(1 + exp(x)) or log(sum(exp(x))) with exponentials in float16."""
    if kind(op) != "log":
        return False
    before = view.origin(op.operands[0])
    if before is None or kind(before) not in ("add", "reduce_sum"):
        return False
    exponentials = [view.origin(value) for value in before.operands]
    return any(
        e is not None
        and kind(e) == "exp"
        and e.types[0].element == HALF
        and not _is_shifted(view, e)
        for e in exponentials
    )


def _is_shifted(view: FunctionView, exponential: Op) -> bool:
    """Return whether no exponent is positive: the largest value is subtracted, or it is -abs(x).

    To subtract 1 is not enough.
    """
    before = view.origin(exponential.operands[0])
    if before is not None and kind(before) == "mul":
        magnitude = view.origin(before.operands[0])
        return magnitude is not None and kind(magnitude) == "abs"
    if before is None or kind(before) != "sub":
        return False
    return not view.is_constant(before.operands[1])


def _is_mean_of_squares(view: FunctionView, op: Op) -> bool:
    """Return whether squares are added that are float16 at some point."""
    if kind(op) not in ("reduce_mean", "reduce_sum"):
        return False
    square, elements = view.producer(op.operands[0]), [op.operand_types[0].element]
    while square is not None and kind(square) == "cast":
        elements.append(square.operand_types[0].element)
        square = view.producer(square.operands[0])
    if square is None or kind(square) not in ("mul", "pow") or HALF not in elements:
        return False
    exponent = view.constant(square.operands[1])
    return square.operands[0] == square.operands[1] or (
        kind(square) == "pow" and exponent is not None and bool((exponent == 2).all())
    )


def _is_hardswish_of_product(view: FunctionView, op: Op) -> bool:
    """Return whether x * clamp(x + 3, 0, 6) follows a rank-2 matrix product of float16."""
    if kind(op) != "mul" or not any(_is_shifted_clamp(view, value) for value in op.operands):
        return False
    found = view.ancestors(op, ("add", "mul", "divide", "cast", *_CLAMPS), 8)
    return any(
        kind(a) == "batch_matmul" and a.types[0].element == HALF and len(a.types[0].shape) == 2
        for a in found
    )


def _is_shifted_clamp(view: FunctionView, value: int) -> bool:
    """Return whether a value is x + 3, clamped, or the composite of that divided by 6."""
    op = view.origin(value)
    if op is not None and kind(op) == "invoke":
        return str(op.attributes.get("callee", "")).startswith(_COMPOSITE)
    clamps = 0
    while op is not None and kind(op) in _CLAMPS:
        clamps += 1
        op = view.origin(op.operands[0])
    if op is None or not clamps or kind(op) != "add":
        return False
    offsets = [view.origin(operand) for operand in op.operands]
    numbers = [o.attributes.get("value") for o in offsets if o is not None]
    return any(n is not None and n.numel() and bool((n == _OFFSET).all()) for n in numbers)


def _values(op: Op, dtype: str) -> torch.Tensor | None:
    """Return the value of a small constant of this dtype, without infinities."""
    if kind(op) != "constant" or op.types[0].element != dtype:
        return None
    value = op.attributes.get("value")
    return None if value is None else value[torch.isfinite(value)]


def _is_low_mask(view: FunctionView, op: Op) -> bool:
    value = _values(op, HALF)
    return value is not None and bool((value < _LOWEST_MASK).any())


def _is_subnormal(view: FunctionView, op: Op) -> bool:
    value = _values(op, HALF)
    if value is None or value.numel() != 1:
        return False
    return bool(((value != 0) & (value.abs() < _SMALLEST_NORMAL)).any())


def _is_nan(view: FunctionView, op: Op) -> bool:
    value = op.attributes.get("value") if kind(op) == "constant" else None
    if value is None or op.types[0].element not in FLOATS or value.numel() == 1:
        return False  # single NaNs are what torch.where and similar ops select
    return bool(torch.isnan(value).any())


def _is_constant_wave(view: FunctionView, op: Op) -> bool:
    return kind(op) in ("sin", "cos") and view.is_constant(op.operands[0])


def _is_transposed_convolution_1d(view: FunctionView, op: Op) -> bool:
    """Return whether one of two axes has size 1 in the input and in the kernel."""
    if kind(op) != "conv_transpose2d":
        return False
    x, weight = (t.shape[2:] for t in op.operand_types[:2])
    return (1, 1) in zip(x, weight, strict=True)


RULES = (
    Rule(
        "HAZ16",
        "warning",
        ("neural_engine",),
        "hardswish after a rank-2 product of float16, which the neural engine rounds wrongly",
        "reshape the input of the product to rank 4",
        "coreai-torch issue 51",
        ops_where(_is_hardswish_of_product),
    ),
    Rule(
        "HAZ17",
        "warning",
        ("neural_engine", "gpu"),
        "the logarithm of exponentials in float16, which overflows above 11",
        "call softplus or logsumexp: coreai_torch emits a form that does not overflow",
        "coreai-torch issue 21",
        ops_where(_is_naive_logarithm),
    ),
    Rule(
        "HAZ18",
        "warning",
        ("gpu", "neural_engine", "cpu"),
        "the mean of squares in float16, which overflows for values above 255",
        "cast to float32 before the square, as nn.RMSNorm and the composites do",
        "coreai-model-zoo conversion guide",
        ops_where(_is_mean_of_squares),
    ),
    Rule(
        "HAZ19",
        "warning",
        ("cpu", "gpu", "neural_engine"),
        "sin or cos of constants, which the compiler folds with low precision",
        "convert with coreai_torch, which folds them in torch",
        "coreai-model-zoo conversion guide",
        ops_where(_is_constant_wave),
    ),
    Rule(
        "HAZ20",
        "warning",
        ("cpu",),
        "a 1-d transposed convolution, for which the CPU of devices gives wrong values",
        "run it on the GPU, and verify on the device",
        "Apple feedback FB24322424",
        ops_where(_is_transposed_convolution_1d),
    ),
    Rule(
        "HAZ32",
        "warning",
        ("neural_engine",),
        "float16 constants below -40000: the sum of two masks overflows",
        "use -40000, not -inf, and add no two masks",
        "coreai-model-zoo; llms-on-apple-neural-engine",
        ops_where(_is_low_mask),
    ),
    Rule(
        "HAZ33",
        "warning",
        ("gpu", "neural_engine"),
        "a float16 constant that is subnormal, as an eps of 1e-5, which devices may flush to zero",
        "compute that part in float32, or use an eps of at least 6.2e-5",
        "coreai-torch pull request 54",
        ops_where(_is_subnormal),
    ),
    Rule(
        "HAZ34",
        "warning",
        ("cpu", "gpu", "neural_engine"),
        "a constant with NaN: multiplied by a mask of zero it stays NaN",
        "initialize buffers with zeros",
        "coreai-model-zoo conversion guide",
        ops_where(_is_nan),
    ),
)
