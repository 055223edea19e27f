"""Compressed weights."""

from __future__ import annotations

from collections.abc import Iterator

from ....asset.reading import Op, bytes_of
from ..rule import Match, Rule, match, ops_where
from ..view import FLOATS, FunctionView, ProgramView, kind

_CONVOLUTIONS = ("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d")
_NARROW = ("si4", "ui4", "ui1", "ui2", "ui3", "ui6", "si2")
_LARGE = 1 << 20
_MAXIMUM_RANK = 5


def _used_by(view: FunctionView, op: Op, kinds: tuple[str, ...]) -> bool:
    """Return whether a weight is an operand of these ops, through casts and reshapes."""
    for user in view.users(op.results[0]):
        if kind(user) in kinds:
            return True
        if kind(user) in ("cast", "reshape", "transpose") and _used_by(view, user, kinds):
            return True
    return False


def _has_grouped_scale(view: FunctionView, op: Op) -> bool:
    """Return whether the scales of a narrow convolution weight vary along its input channels."""
    if kind(op) != "blockwise_shift_scale" or not _used_by(view, op, _CONVOLUTIONS):
        return False
    data, scale = op.operand_types[0], op.operand_types[1].shape
    before = view.origin(op.operands[0])
    narrow = data.element in _NARROW or (before is not None and kind(before) == "lut_to_dense")
    return narrow and len(scale) > 1 and scale[1] > 1


def _is_per_channel_int8(view: FunctionView, op: Op) -> bool:
    if kind(op) != "blockwise_shift_scale" or op.operand_types[0].element != "si8":
        return False
    scale = op.operand_types[1].shape
    per_channel = len(scale) == 2 and scale[0] > 1 and scale[1] == 1
    return per_channel and _used_by(view, op, ("batch_matmul",))


def _is_product_of_dequantized(view: FunctionView, op: Op) -> bool:
    if kind(op) != "mul":
        return False
    before = [view.origin(value) for value in op.operands[:2]]
    return all(b is not None and kind(b) == "dequantize" for b in before)


def _has_high_rank_table(view: FunctionView, op: Op) -> bool:
    return kind(op) == "lut_to_dense" and len(op.operand_types[1].shape) > _MAXIMUM_RANK


def _uncompressed_weights(view: ProgramView) -> Iterator[Match]:
    """Find large float weights in a program whose other weights are compressed."""
    compressed = ("blockwise_shift_scale", "lut_to_dense", "sparse_with_bitmask_to_dense")
    if not any(next(f.where(*compressed), None) for f in view.functions):
        return
    for function in view.functions:
        for op in function.where("constant"):
            if op.types[0].element in FLOATS and bytes_of(op.types[0]) >= _LARGE:
                yield match(op)


RULES = (
    Rule(
        "HAZ22",
        "warning",
        ("neural_engine",),
        "a convolution with grouped scales of narrow weights, which are read in the wrong order",
        "use one scale per output channel",
        "coreai-torch issue 93",
        ops_where(_has_grouped_scale),
    ),
    Rule(
        "HAZ23",
        "warning",
        ("neural_engine",),
        "the product of two dequantized tensors, which uses the scale of the wrong one",
        "clamp one of them, or keep one in float",
        "coreai-torch issue 112",
        ops_where(_is_product_of_dequantized),
    ),
    Rule(
        "HAZ24",
        "warning",
        ("gpu",),
        "int8 weights with one scale per channel, which gave NaN on the GPU",
        "quantize in blocks of 32",
        "coreai-model-zoo, rule PER-CHANNEL-INT8-GPU",
        ops_where(_is_per_channel_int8),
    ),
    Rule(
        "HAZ41",
        "error",
        ("neural_engine",),
        f"a lookup table of rank above {_MAXIMUM_RANK}, which the neural engine rejects",
        "palettize without scales per channel",
        "coreai-optimization tracker",
        ops_where(_has_high_rank_table),
    ),
    Rule(
        "HAZ55",
        "info",
        ("cpu", "gpu", "neural_engine"),
        "large weights that are not compressed beside others that are",
        "check tied weights, and sizes that the block size does not divide",
        "coreai-model-zoo; coreai-optimization tracker",
        _uncompressed_weights,
    ),
)
