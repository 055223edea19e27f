"""Rounding, casts and masks that give wrong numbers."""

from __future__ import annotations

import torch

from ....asset.reading import Op
from ..rule import Rule, ops_where
from ..view import FLOATS, FunctionView, is_integer, kind

_COMBINING = ("and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor")
_LOGIC = (*_COMBINING, "not")
_COMPARISONS = ("equal", "not_equal", "greater")


def _is_rounding(view: FunctionView, op: Op) -> bool:
    if kind(op) == "round":
        return op.types[0].element in FLOATS
    divisor = view.constant(op.operands[1]) if kind(op) == "floor_divide" else None
    return divisor is not None and op.types[0].element in FLOATS and _is_one(divisor)


def _is_one(value: torch.Tensor) -> bool:
    return value.numel() > 0 and bool((value == 1).all())


def _is_cast_round_trip(view: FunctionView, op: Op) -> bool:
    before = view.producer(op.operands[0]) if kind(op) == "cast" else None
    return (
        before is not None
        and kind(before) == "cast"
        and before.operand_types[0].element in FLOATS
        and is_integer(before.types[0])
        and op.types[0].element in FLOATS
        and not _is_whole(view, before)
    )


def _is_whole(view: FunctionView, op: Op) -> bool:
    """Return whether the operand was rounded before, so that the casts change nothing."""
    product = view.producer(op.operands[0])
    if product is not None and _is_signed(view, product):
        op = product
    found = view.ancestors(op, ("where", "sub", "add", "cast"), 8)
    return any(kind(a) in ("round", "floor_divide") for a in found)


def _is_signed(view: FunctionView, op: Op) -> bool:
    """Return whether a product is the end of `trunc`: a whole number times x within [-1, 1]."""
    sign = view.producer(op.operands[1]) if kind(op) == "mul" else None
    return sign is not None and kind(sign) == "minimum"


def _is_mask_as_number(view: FunctionView, op: Op) -> bool:
    """Return whether a combination of masks becomes a number."""
    if kind(op) != "cast" or op.operand_types[0].element != "i1" or op.types[0].element == "i1":
        return False
    before = view.origin(op.operands[0])
    while before is not None and kind(before) == "not":
        before = view.origin(before.operands[0])
    return before is not None and kind(before) in _COMBINING


def _is_integer_mask_as_number(view: FunctionView, op: Op) -> bool:
    """Return whether comparisons of integers are combined into a mask that becomes a number."""
    if not _is_mask_as_number(view, op):
        return False
    found = view.ancestors(op, ("cast", "reshape", *_LOGIC), 8)
    return any(kind(a) in _COMPARISONS and is_integer(a.operand_types[0]) for a in found)


def _is_distance(view: FunctionView, op: Op) -> bool:
    """Return whether a column and a row of one length are added: `a[:, None] + b[None, :]`."""
    if kind(op) not in ("add", "sub") or len(op.operand_types) < 2:
        return False
    first, second = (t.shape for t in op.operand_types[:2])
    if len(first) < 2 or not second:
        return False
    column, row = first[-2:], (1, *second)[-2:]
    return column[1] == row[0] == 1 and column[0] == row[1] != 1


RULES = (
    Rule(
        "HAZ11",
        "warning",
        ("gpu",),
        "rounding of floats, which the GPU skips or rounds away from zero at ties",
        "run this part on the CPU, or return the values before rounding",
        "coreai-torch issue 10",
        ops_where(_is_rounding),
    ),
    Rule(
        "HAZ12",
        "warning",
        ("cpu", "gpu", "neural_engine"),
        "a cast from float to integer and back, which the compiler removes",
        "call torch.trunc before the cast: coreai_torch emits it",
        "coreai-torch issue 9",
        ops_where(_is_cast_round_trip),
    ),
    Rule(
        "HAZ13",
        "warning",
        ("cpu",),
        "combined masks that are cast to a number, for which the CPU gives wrong values",
        "multiply the masks as numbers: (a > 0).float() * (a < 5).float()",
        "coreai-torch issue 74",
        ops_where(_is_mask_as_number),
    ),
    Rule(
        "HAZ14",
        "warning",
        ("gpu", "neural_engine"),
        "a mask from comparisons of integers that is cast to a number: it overwrites other tensors",
        "compare floats, or multiply the masks as numbers",
        "coreai-torch issue 11; rf-detr documentation",
        ops_where(_is_integer_mask_as_number),
    ),
    Rule(
        "HAZ26",
        "warning",
        ("cpu", "gpu", "neural_engine"),
        "the sum of a column and a row of the same length, from which optimize() may drop an axis",
        "run coreai-torch verify on the optimized program",
        "coreai-torch issue 49",
        ops_where(_is_distance),
    ),
)
