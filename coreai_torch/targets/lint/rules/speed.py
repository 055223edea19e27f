"""Constructs that leave the neural engine or take long there."""

from __future__ import annotations

from collections.abc import Iterator

from ....asset.reading import Op
from ..rule import Match, Rule, match, ops_where
from ..view import FLOATS, HALF, FunctionView, ProgramView, elements, is_integer, kind

_LARGE = 1 << 16
_ROW = 32  # float16 values in the 64 bytes to which the last size is padded


def _computes(view: FunctionView, op: Op) -> bool:
    """Return whether an op is neither a constant, a cast of one or of an output, nor a call."""
    if kind(op) == "cast":
        is_output = all(kind(user) == "output" for user in view.users(op.results[0]))
        return not (is_output or view.is_constant(op.operands[0]))
    return kind(op) not in ("constant", "invoke")


def _float32_leaks(view: ProgramView) -> Iterator[Match]:
    """Find float32 ops in a program that computes mostly in float16."""
    ops = [op for f in view.outside_composites for op in f.ops if _computes(f, op)]
    floats = [op for op in ops if op.types and op.types[0].element in FLOATS]
    wide = [op for op in floats if op.types[0].element == "f32"]
    if 0 < len(wide) * 2 < len(floats) and any(op.types[0].element == HALF for op in floats):
        yield from (match(op) for op in wide)


def _is_gather_inside(view: FunctionView, op: Op) -> bool:
    """Return whether an op gathers or scatters other than rows of a table at the start.

    At the start, masks, tables and indices do not depend on float values.
    """
    if kind(op) not in ("gather_along_axis", "gather_nd", "scatter_along_axis", "scatter_nd"):
        return False
    if kind(op).startswith("scatter"):
        return True
    data, type_ = op.operands[0], op.operand_types[0]
    is_mask = (is_integer(type_) or type_.element == "i1") and view.is_integral(data)
    known = is_mask or view.is_constant(data)
    return not (known and view.is_integral(op.operands[1]))


def _is_narrow_row(view: FunctionView, op: Op) -> bool:
    type_ = op.types[0] if op.types else None
    return (
        type_ is not None
        and kind(op) not in ("constant", "reshape", "transpose")
        and type_.element in FLOATS
        and len(type_.shape) == 4
        and 0 < type_.shape[-1] < _ROW // 4
        and elements(type_) >= _LARGE
    )


RULES = (
    Rule(
        "HAZ51",
        "warning",
        ("neural_engine",),
        "float32 ops in a float16 program: each one splits the region on the neural engine",
        "remove .float() and dtype=torch.float32 where float16 is enough",
        "coreai-model-zoo, note on regions",
        _float32_leaks,
    ),
    Rule(
        "HAZ52",
        "info",
        ("neural_engine",),
        "gather or scatter inside the model, which do not run on the neural engine",
        "move them to the ends of the model, or into the app",
        "Core AI skill notes on residency",
        ops_where(_is_gather_inside),
    ),
    Rule(
        "HAZ53",
        "info",
        ("gpu", "neural_engine"),
        "sort or topk, which takes about 1.75 ms on a device at any size",
        "return the scores, and select in the app",
        "coreai-torch issue 66; ultralytics documentation",
        ops_where(lambda view, op: kind(op) in ("sort", "argsort")),
    ),
    Rule(
        "HAZ57",
        "info",
        ("neural_engine",),
        "large tensors with a small last size, which the neural engine pads to 64 bytes",
        "put the largest axis last",
        "llms-on-apple-neural-engine",
        ops_where(_is_narrow_row),
    ),
)
