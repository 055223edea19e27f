"""Selections as products, and masks of a softmax without -inf."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import (
    LAYOUT,
    Operation,
    callee,
    composite,
    invoke,
    is_computed_by,
    kind,
    known,
    producer,
    rebuilt,
    source,
)
from . import masks

LOWEST = -40000.0  # of a mask on the neural engine
_ATTENTION = "scaled_dot_product_attention"
_FAR = 32768.0  # twice this factor makes the least difference of float16 numbers, 2**-24, 64
_COMPARISONS = ("greater", "equal", "not_equal")
# These may give an infinity or NaN for finite numbers that the selection leaves out.
_UNBOUNDED = ("divide", "floor_divide", "modulo", "pow", "exp", "log", "sqrt", "rsqrt", "tan")
_BOUNDED = (*LAYOUT, "add", "sub", "mul", "maximum", "minimum", "abs", "relu", "slice", "concat")
_STEPS = 8


def products(op: Operation) -> Sequence[Value] | None:
    """Replace `where` and the cast of a mask if comparisons of float16 computed the mask."""
    if kind(op) not in ("where", "cast") or d.dtype(op.results[0]) != torch.float16:
        return None
    mask = op.operands[0]
    if not d.is_bool(mask) or not _is_from_halves(mask):
        return None
    if kind(op) == "cast":
        return [masks.as_number(mask, torch.float16, _compared)]
    chosen, other = list(op.operands)[1:]
    if not _is_bounded(chosen) or not _is_bounded(other):
        return None
    share = masks.as_number(mask, torch.float16, _compared)
    rest = d.sub(d.like(share, 1.0), share)
    return [d.add(d.mul(chosen, share), d.mul(other, rest))]


def _is_from_halves(mask: Value) -> bool:
    """Return whether a mask combines comparisons of float16 numbers."""
    op = producer(mask)
    if op is None:
        return False
    if kind(op) in _COMPARISONS:
        return bool(d.dtype(op.operands[0]) == torch.float16)
    if kind(op) in masks.LOGIC:
        return all(map(_is_from_halves, op.operands))
    return kind(op) in LAYOUT and d.is_bool(op.operands[0]) and _is_from_halves(op.operands[0])


def _is_bounded(value: Value) -> bool:
    """Return whether a value is finite for finite operands: zero times infinity is NaN."""
    op = producer(value)
    if op is None:
        return True
    constant = known(value)
    if constant is not None:
        return bool(torch.isfinite(constant).all())
    return kind(op) not in _UNBOUNDED and not is_computed_by(
        op, lambda one: kind(one) in _UNBOUNDED, _BOUNDED, _STEPS
    )


def _compared(mask: Value, target: torch.dtype) -> Value:
    """Return a comparison as 0 or 1, computed from the difference."""
    op = producer(mask)
    assert op is not None
    difference = d.sub(*op.operands)
    if kind(op) == "greater":
        return _step(d.relu(difference))
    differs = _step(d.abs_(difference))
    return d.sub(d.like(differs, 1.0), differs) if kind(op) == "equal" else differs


def _step(distance: Value) -> Value:
    """Return 0 for 0, and 1 for positive numbers."""
    for _ in range(2):
        distance = d.minimum(d.mul(distance, _FAR), d.like(distance, 1.0))
    return distance


def finite_mask(op: Operation) -> Sequence[Value] | None:
    """Replace -inf in the constant mask of attention or of a softmax, unless it hides all keys."""
    if composite(callee(op)) == _ATTENTION:
        mask = _finite(op.operands[3]) if len(op.operands) > 3 else None
        return None if mask is None else _attended(op, mask)
    if kind(op) != "add":
        return None
    if not any(kind(user) == "softmax" for user in _readers(op)):
        return None
    finite = [_finite(value) for value in op.operands]
    if not any(value is not None for value in finite):
        return None
    pairs = zip(finite, op.operands, strict=True)
    return rebuilt(op, [old if new is None else new for new, old in pairs])


def _attended(op: Operation, mask: Value) -> Sequence[Value]:
    query, key, value, _, *sinks = op.operands
    return invoke(callee(op), [query, key, value, mask, *sinks])


def _readers(op: Operation) -> list[Operation]:
    """Return the ops that read a result, after reshapes."""
    found = []
    for use in op.results[0].uses:
        user = use.owner.operation
        found += _readers(user) if kind(user) in LAYOUT else [user]
    return found


def _finite(value: Value) -> Value | None:
    """Return a mask with -40000 in place of -inf; None if it has none, or hides all keys."""
    origin = source(value)
    mask = known(origin.results[0]) if origin is not None else None
    if mask is None or not mask.is_floating_point():
        return None
    hidden = torch.isneginf(mask)
    if not bool(hidden.any()) or not mask.dim() or bool(hidden.all(-1).any()):
        return None
    new = d.tensor_constant(mask.masked_fill(hidden, LOWEST))
    return _through(value, origin, new)


def _through(value: Value, origin: Operation, new: Value) -> Value:
    """Emit the reshapes between a constant and a value again."""
    op = producer(value)
    if op is None or value == origin.results[0]:
        return new
    return rebuilt(op, [_through(op.operands[0], origin, new), *list(op.operands)[1:]])[0]
