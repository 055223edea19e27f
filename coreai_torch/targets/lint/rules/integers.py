"""Integers: indices of sorted elements, overflow, indices outside a tensor."""

from __future__ import annotations

from ....asset.reading import Op
from ..rule import Rule, ops_where
from ..view import HALF, LAYOUT, FunctionView, is_integer, kind

_ORDERING = ("sort", "argsort", "argmax", "topk")


def _is_half_ordering(view: FunctionView, op: Op) -> bool:
    return kind(op) in _ORDERING and any(t.element == HALF for t in (*op.types, *op.operand_types))


def _is_wrapping(view: FunctionView, op: Op) -> bool:
    return kind(op) in ("reduce_sum", "reduce_product") and _may_overflow(view, op)


def _is_trapping(view: FunctionView, op: Op) -> bool:
    return kind(op) in ("scan", "batch_matmul") and _may_overflow(view, op)


def _may_overflow(view: FunctionView, op: Op) -> bool:
    """Return whether integers are added that are neither counts of a mask nor sizes."""
    return is_integer(op.types[0]) and not _is_mask_or_size(view, op.operands[0])


def _is_mask_or_size(view: FunctionView, value: int) -> bool:
    op = view.producer(value)
    while op is not None and kind(op) in (*LAYOUT, "slice"):
        if op.operand_types[0].element == "i1":
            return True
        op = view.producer(op.operands[0])
    return op is not None and kind(op) == "get_shape"


def _is_unchecked_scatter(view: FunctionView, op: Op) -> bool:
    if kind(op) != "scatter_along_axis":
        return False
    indices, last = _selected(view, op.operands[1])
    if indices is not None and kind(indices) in ("argsort", "argmax"):
        length = _length(view, indices, 1)
        return not 0 < length <= _length(view, op, 3) or last not in (None, length - 1)
    return not _is_bounded(view, indices)


def _is_bounded(view: FunctionView, op: Op | None) -> bool:
    """Return whether indices are constants, clamped, or selected from such indices."""
    if op is not None and kind(op) == "where":
        return all(_is_bounded(view, view.origin(value)) for value in op.operands[1:3])
    return op is not None and kind(op) in ("constant", "minimum", "maximum")


def _selected(view: FunctionView, value: int) -> tuple[Op | None, int | None]:
    """Return the op that computes indices, and `last` if they are `last - indices`."""
    op, last = view.origin(value), None
    while op is not None and kind(op) in ("slice", "reverse", "sub"):
        operand = op.operands[0]
        if kind(op) == "sub":  # a descending order counts from the last element
            offset = view.constant(operand)
            if last is not None or offset is None or offset.numel() != 1:
                return op, last
            last, operand = int(offset), op.operands[1]
        op = view.origin(operand)
    return op, last


def _length(view: FunctionView, op: Op, axis: int) -> int:
    """Return the size of the first operand along the axis that another operand gives, or 0."""
    at = view.constant(op.operands[axis]) if len(op.operands) > axis else None
    return 0 if at is None else op.operand_types[0].shape[int(at)]


RULES = (
    Rule(
        "HAZ06",
        "warning",
        ("neural_engine",),
        "sort or argmax of float16, for which the neural engine returns wrong indices",
        "compute that part of the model in float32",
        "coreai-torch issue 115; rf-detr exporter",
        ops_where(_is_half_ordering),
    ),
    Rule(
        "HAZ15",
        "warning",
        ("neural_engine",),
        "argmax inside the program, which gave wrong indices on an iPhone 17 Pro",
        "return the scores and take the argmax in the app",
        "coreai-torch issue 116",
        ops_where(lambda view, op: kind(op) == "argmax"),
    ),
    Rule(
        "HAZ28",
        "info",
        ("cpu", "gpu", "neural_engine"),
        "sums or products of integers, which have 32 bits here and 64 in torch",
        "check that the largest result is below 2**31, or sum in float32",
        "coreai-torch pull request 45",
        ops_where(_is_wrapping),
    ),
    Rule(
        "HAZ29",
        "warning",
        ("cpu",),
        "cumulative sums or matrix products of integers: overflow ends the process",
        "check that the largest result is below 2**31, or compute in float32",
        "measured with coreai-core 1.0.0b3 on Linux; coreai-torch pull request 45",
        ops_where(_is_trapping),
    ),
    Rule(
        "HAZ30",
        "warning",
        ("cpu",),
        "scatter with indices from an input: an index out of range overwrites memory",
        "clamp the indices in the model, or check them in the app",
        "measured with coreai-core 1.0.0b3 on Linux",
        ops_where(_is_unchecked_scatter),
    ),
)
