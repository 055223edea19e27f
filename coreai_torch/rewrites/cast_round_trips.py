"""Truncate before a cast to integers and back, which the compiler removes."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import dialect as d
from ..ir.dialect import Value
from ..ir.editing import Operation, kind, made_by, producer
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
    if _is_whole(inner, 4):
        return None
    whole = d.raw_cast(truncated(inner.operands[0]), d.dtype(op.operands[0]))
    return [d.raw_cast(whole, d.dtype(op.results[0]))]


def _is_whole(op: Operation, steps: int) -> bool:
    """Return whether the operands were rounded before."""
    for value in op.operands:
        found = producer(value)
        if found is None:
            continue
        if kind(found) in _WHOLE:
            return True
        if steps and kind(found) in _THROUGH and _is_whole(found, steps - 1):
            return True
    return False
