"""Truncate before a cast to integers and back, which the compiler removes."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, is_computed_by, kind, made_by
from .rounding import truncated

_THROUGH = ("where", "sub", "cast")
_WHOLE = ("round", "floor_divide")


def apply(op: Operation) -> Sequence[Value] | None:
    """Replace the outer cast; the inner one stays for its other users."""
    if kind(op) != "cast" or not d.is_float(op.results[0]):
        return None
    inner = made_by(op.operands[0], "cast")
    if inner is None or not d.is_integer(op.operands[0]) or not d.is_float(inner.operands[0]):
        return None
    if is_computed_by(inner, lambda one: kind(one) in _WHOLE, _THROUGH, 4):
        return None  # rounded before
    whole = d.raw_cast(truncated(inner.operands[0]), d.dtype(op.operands[0]))
    return [d.raw_cast(whole, d.dtype(op.results[0]))]
