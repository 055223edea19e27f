"""Integers: indices of sorted elements, overflow, indices outside a tensor."""

from __future__ import annotations

from ...asset.reading import Op
from ..rule import Rule, ops_where
from ..view import HALF, FunctionView, is_integer, kind

_ORDERING = ("sort", "argsort", "argmax", "topk")


def _is_half_ordering(view: FunctionView, op: Op) -> bool:
    return kind(op) in _ORDERING and any(t.element == HALF for t in (*op.types, *op.operand_types))


def _is_wrapping(view: FunctionView, op: Op) -> bool:
    return kind(op) in ("reduce_sum", "reduce_product") and is_integer(op.types[0])


def _is_trapping(view: FunctionView, op: Op) -> bool:
    return kind(op) in ("scan", "batch_matmul") and is_integer(op.types[0])


def _is_unchecked_scatter(view: FunctionView, op: Op) -> bool:
    if kind(op) != "scatter_along_axis":
        return False
    indices = view.origin(op.operands[1])
    return indices is None or kind(indices) not in ("constant", "minimum", "maximum")


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
