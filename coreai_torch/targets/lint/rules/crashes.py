"""Constructs that compilers reject, or that end the process."""

from __future__ import annotations

from collections.abc import Iterator

from ....asset.reading import DYNAMIC, Op, bytes_of
from ..rule import Match, Rule, ops_where
from ..view import FunctionView, ProgramView, kind

_MAXIMUM_RANK = 5
_ENGINE_BYTES = 1500 << 20


def _has_zero_size(view: FunctionView, op: Op) -> bool:
    return any(0 in t.shape for t in op.types) and not _is_shape_of_number(op)


def _is_shape_of_number(op: Op) -> bool:
    """Return whether a constant is the zero-size shape operand of a reshape to rank 0."""
    return kind(op) == "constant" and op.types[0].shape == (0,) and op.types[0].element == "ui32"


def _has_run_time_range(view: FunctionView, op: Op) -> bool:
    return kind(op) == "slice_update" and not all(view.is_constant(v) for v in op.operands[1:3])


def _is_dynamic_kernel(view: FunctionView, op: Op) -> bool:
    types = (*op.types, *op.operand_types)
    return kind(op) == "metal4_kernel" and any(DYNAMIC in t.shape for t in types)


def _large_program(view: ProgramView) -> Iterator[Match]:
    constants = [op for f in view.functions for op in f.where("constant")]
    total = sum(bytes_of(op.types[0]) for op in constants if DYNAMIC not in op.types[0].shape)
    if total > _ENGINE_BYTES:
        yield f"{total / 1e9:.1f} GB of constants", ""


RULES = (
    Rule(
        "HAZ03",
        "error",
        ("gpu", "neural_engine"),
        "zero-size results, which crash the process on the GPU and the neural engine",
        "change the model so that it does not compute them",
        "coreai-torch issue 68; ultralytics pull request 25926",
        ops_where(_has_zero_size),
    ),
    Rule(
        "HAZ07",
        "warning",
        ("neural_engine",),
        f"tensors of rank above {_MAXIMUM_RANK}, which the neural engine does not support",
        "merge axes with a reshape",
        "Apple documentation of the neural engine; coreai-model-zoo",
        ops_where(lambda view, op: any(len(t.shape) > _MAXIMUM_RANK for t in op.types)),
    ),
    Rule(
        "HAZ08",
        "warning",
        ("gpu", "cpu"),
        "loops, which the GPU compiler has rejected",
        "unroll a fixed number of steps",
        "coreai-model-zoo, rule SRC-WHILE-LOOP",
        ops_where(lambda view, op: kind(op) == "while"),
    ),
    Rule(
        "HAZ09",
        "warning",
        ("cpu", "neural_engine"),
        "Metal kernels, which run only on the GPU",
        "run coreai-torch verify, which runs them from their source on the CPU",
        "Apple documentation of custom kernels",
        ops_where(lambda view, op: kind(op) == "metal4_kernel"),
    ),
    Rule(
        "HAZ10",
        "warning",
        ("cpu", "gpu", "neural_engine"),
        "sizes that depend on values: if one is zero, some ops crash the process",
        "use a mask instead of the selected elements, or inputs that select at least one",
        "measured with coreai-core 1.0.0b3 on Linux",
        ops_where(lambda view, op: kind(op) == "non_zero"),
    ),
    Rule(
        "HAZ35",
        "error",
        ("gpu", "neural_engine"),
        "a write at an index that is known only at run time, which crashes the compiler",
        "write the whole tensor with a mask: torch.where(positions == index, new, old)",
        "coreai-torch issue 6; coreai-models issue 5, which says that 27.0 beta 4 fixes it",
        ops_where(_has_run_time_range),
        before="27.0",
    ),
    Rule(
        "HAZ40",
        "error",
        ("neural_engine",),
        "bfloat16 tensors, which the ahead-of-time compiler rejects; a Mac's GPU ran some",
        "convert the model with model.half(), or keep float32",
        "coreai-model-zoo conversion guide",
        ops_where(lambda view, op: any(t.element == "bf16" for t in op.types)),
    ),
    Rule(
        "HAZ42",
        "warning",
        ("gpu",),
        "a Metal kernel with dynamic sizes, which fails to compile",
        "export with fixed sizes",
        "coreai-model-zoo error index",
        ops_where(_is_dynamic_kernel),
    ),
    Rule(
        "HAZ43",
        "warning",
        ("neural_engine",),
        "more than 1.5 GB of constants, above what one program on the neural engine can have",
        "compress the weights, or split the model into several assets",
        "coreai-fabric, finding T3",
        _large_program,
    ),
)
