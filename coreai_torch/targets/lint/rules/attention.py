"""The attention composites."""

from __future__ import annotations

from collections.abc import Iterator

from ....asset.reading import DYNAMIC, Op
from ..rule import Match, Rule, calls_where, match, ops_where
from ..view import HALF, FunctionView, ProgramView, kind

_ATTENTION = "scaled_dot_product_attention"
_GATED_DELTA = "gated_delta_update"
_MANY_KEYS = 4096
_WIDE_HEAD = 512


def _head_sizes(op: Op) -> tuple[int, int]:
    shapes = [t.shape for t in op.operand_types[:3]]
    return (shapes[0][-1], shapes[2][-1]) if len(shapes) == 3 and all(shapes) else (0, 0)


def _is_long_attention(view: FunctionView, op: Op) -> bool:
    """Return whether probabilities of many keys are multiplied with values in float16."""
    if kind(op) != "batch_matmul" or op.types[0].element != HALF:
        return False
    found = view.origin(op.operands[0])
    return (
        found is not None
        and kind(found) == "softmax"
        and op.operand_types[0].shape[-1] >= _MANY_KEYS
    )


def _gated_delta_beside_attention(view: ProgramView) -> Iterator[Match]:
    calls = [op for f in view.functions for op in f.where("invoke")]
    deltas = [op for op in calls if view.composite(op) == _GATED_DELTA]
    dynamic = [
        op
        for op in calls
        if view.composite(op) == _ATTENTION and any(DYNAMIC in t.shape for t in op.operand_types)
    ]
    if len(deltas) > 1 and dynamic:
        yield match(deltas[1])


RULES = (
    Rule(
        "HAZ31",
        "warning",
        ("neural_engine",),
        f"attention over {_MANY_KEYS} keys or more in float16: the product loses 5 % of precision",
        "attend in float32, or scale the probabilities by 64 and the result by 1/64",
        "llms-on-apple-neural-engine",
        ops_where(_is_long_attention),
    ),
    Rule(
        "HAZ36",
        "warning",
        ("gpu",),
        "attention without a mask, which crashed the compiler of the GPU",
        "pass a mask from an input, or decompose the attention",
        "coreai-fabric, finding F1",
        calls_where(_ATTENTION, lambda view, op: len(op.operands) < 4),
    ),
    Rule(
        "HAZ37",
        "error",
        ("gpu", "neural_engine"),
        "attention whose queries and values have different head sizes, which compilers reject",
        "pad the values to the head size of the queries",
        "coreai-model-zoo error index; coreai-models issue 27",
        calls_where(_ATTENTION, lambda view, op: len(set(_head_sizes(op))) > 1),
    ),
    Rule(
        "HAZ38",
        "error",
        ("gpu",),
        f"attention with a head size of {_WIDE_HEAD} or more, which overflows the heap",
        "decompose the attention",
        "coreai-models issue 201",
        calls_where(_ATTENTION, lambda view, op: _head_sizes(op)[0] >= _WIDE_HEAD),
    ),
    Rule(
        "HAZ39",
        "error",
        ("gpu",),
        "two gated delta updates beside attention of dynamic size, which crash the GPU compiler",
        "export with fixed sizes, or one step per call",
        "coreai-torch issue 2",
        _gated_delta_beside_attention,
    ),
)
