"""Combine masks as numbers when the result is used as a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, is_computed_by, kind, producer, rebuilt, source

_LAYOUT = (
    *("reshape", "transpose", "expand_dims", "shrink_dims"),
    *("broadcast_in_dims", "broadcast_to", "broadcast"),
)
_COMBINING = ("and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor")
LOGIC = (*_COMBINING, "not")
_COMPARISONS = ("equal", "not_equal", "greater")
_DEPTH = 8


def combined(op: Operation) -> Sequence[Value] | None:
    """Replace the cast of any combination of masks."""
    if not _is_mask_as_number(op):
        return None
    return [as_number(op.operands[0], d.dtype(op.results[0]))]


def combined_integers(op: Operation) -> Sequence[Value] | None:
    """Replace the cast of a combination of integer comparisons."""
    if not _is_mask_as_number(op):
        return None
    through = (*_LAYOUT, *LOGIC)
    return combined(op) if is_computed_by(op, _compares_integers, through, _DEPTH) else None


def _is_mask_as_number(op: Operation) -> bool:
    if kind(op) != "cast" or not d.is_bool(op.operands[0]) or d.is_bool(op.results[0]):
        return False
    if d.is_complex(op.results[0]):
        return False
    found = source(op.operands[0], (*_LAYOUT, "not"))
    return found is not None and kind(found) in _COMBINING


def _compares_integers(op: Operation) -> bool:
    return kind(op) in _COMPARISONS and d.is_integer(op.operands[0])


def as_number(
    mask: Value, target: torch.dtype, leaf: Callable[[Value, torch.dtype], Value] = d.raw_cast
) -> Value:
    """Return a mask as zeros and ones, with logic as arithmetic; `leaf` gives those of others."""
    op = producer(mask)
    if op is None or kind(op) not in (*_LAYOUT, *LOGIC):
        return leaf(mask, target)
    if kind(op) in _LAYOUT:
        inner = as_number(op.operands[0], target, leaf)
        type_ = d.RankedTensorType.get(mask.type.shape, inner.type.element_type)
        return rebuilt(op, [inner, *list(op.operands)[1:]], [type_])[0]
    parts = [as_number(value, target, leaf) for value in op.operands]
    if kind(op) == "not":
        return d.sub(d.like(parts[0], 1), parts[0])
    if kind(op) in ("and", "bitwise_and"):
        return d.minimum(*parts)
    if kind(op) in ("or", "bitwise_or"):
        return d.maximum(*parts)
    return d.sub(d.maximum(*parts), d.minimum(*parts))
