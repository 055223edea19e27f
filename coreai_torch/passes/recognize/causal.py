"""Recognize masks that hide later keys, and keys before a window, by comparing positions.

The composite of attention makes such a mask itself, as its attributes say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...torch_compat import aten
from .pattern import (
    Mismatch,
    arguments,
    is_call,
    is_tensor,
    is_view,
    same_sizes,
    shape_of,
    through,
)

_ANDS = (aten.bitwise_and.Tensor, aten.logical_and.default)
_RESHAPED = (aten._to_copy.default, aten.unsqueeze.default)
# Whether `one - other` is at most or at least a number, and that number.
_COMPARED = {
    aten.le.Tensor: (True, 0),
    aten.lt.Tensor: (True, -1),
    aten.ge.Tensor: (False, 0),
    aten.gt.Tensor: (False, 1),
}
_KEYS, _QUERIES = -1, -2  # axes of a mask


def causal_window(mask: Any, queries: Any, keys: Any) -> int | None:
    """Return the window of a causal mask `[1, 1, queries, keys]`: 0 for all earlier keys.

    The last query is at the position of the last key. Return None for other masks.
    """
    if not is_tensor(mask) or not all(map(_is_one, shape_of(mask)[:-2])):
        return None
    if not same_sizes(shape_of(mask)[-2:], (queries, keys)):
        return None
    try:
        limits = list(_limits(mask))
    except Mismatch:
        return None
    most = [limit.number for limit in limits if limit.is_largest]
    least = [limit.number for limit in limits if not limit.is_largest]
    last = keys - queries
    if len(most) != 1 or len(least) > 1 or not statically_known_true(most[0] == last):
        return None
    window = _as_number(last - least[0] + 1) if least else 0
    return window if window is not None and (window > 0 or not least) else None


def _as_number(size: Any) -> int | None:
    """Return a size as a number if it is one, without a guard on it."""
    if isinstance(size, int):
        return size
    found: int | None = size.node.maybe_as_int()
    return found


@dataclass(frozen=True)
class _Limit:
    """The largest or smallest `key - query` that is visible, both counted from 0."""

    is_largest: bool
    number: Any


def _limits(mask: Any) -> Iterator[_Limit]:
    """Yield the limits that a mask consists of; raise for anything else."""
    mask = through(mask)
    while is_call(mask, aten.expand.default, *_RESHAPED) or is_view(mask):
        mask = through(arguments(mask)["self"])
    if is_call(mask, *_ANDS):
        for part in (arguments(mask)["self"], arguments(mask)["other"]):
            yield from _limits(part)
        return
    if is_call(mask, aten.full.default) and arguments(mask)["fill_value"] is True:
        return
    if not is_call(mask, *_COMPARED):
        raise Mismatch("not a comparison of positions")
    is_largest, number = _COMPARED[mask.target]
    one, other = (_Positions.of(arguments(mask)[name]) for name in ("self", "other"))
    if (one.axis, other.axis) == (_QUERIES, _KEYS):
        one, other, is_largest, number = other, one, not is_largest, -number
    if (one.axis, other.axis) != (_KEYS, _QUERIES):
        raise Mismatch("not a comparison of keys and queries")
    yield _Limit(is_largest, other.start - one.start + number)


@dataclass(frozen=True)
class _Positions:
    """Consecutive integers along one axis, counted from the end of the axes."""

    axis: int
    start: Any

    @classmethod
    def of(cls, node: Any) -> _Positions:
        """Read positions that were shifted by numbers and sizes."""
        if not is_tensor(node) or node.meta["val"].dtype.is_floating_point:
            raise Mismatch("not positions")
        shape = shape_of(node)
        axes = [axis - len(shape) for axis, size in enumerate(shape) if not _is_one(size)]
        if len(axes) != 1:
            raise Mismatch("not positions along one axis")
        return cls(axes[0], _first(node))


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _first(node: Any) -> Any:
    """Return the first of consecutive integers."""
    node = through(node)
    while is_call(node, *_RESHAPED) or is_view(node):
        node = through(arguments(node)["self"])
    if is_call(node, aten.arange.start_step) and arguments(node)["step"] == 1:
        return _size(arguments(node)["start"])
    if is_call(node, aten.add.Tensor, aten.sub.Tensor) and arguments(node)["alpha"] == 1:
        shift = _size(arguments(node)["other"])
        first = _first(arguments(node)["self"])
        return first + shift if node.target is aten.add.Tensor else first - shift
    raise Mismatch("not consecutive integers")


def _size(given: Any) -> Any:
    """Return a number, or the symbolic value of a node."""
    value = given.meta.get("val") if isinstance(given, fx.Node) else given
    if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
        return value
    raise Mismatch("not a size")
