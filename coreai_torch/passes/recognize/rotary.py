"""Recognize rotary embeddings of halves or neighbours, of all features or the first ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch.fx as fx

from ...fx.editing import Writer
from ...torch_compat import aten
from . import composites
from .pattern import (
    Match,
    Mismatch,
    Part,
    Surroundings,
    arguments,
    cast_from,
    dtype_of,
    is_call,
    is_tensor,
    is_view,
    last_axis,
    operands,
    paired_from,
    part_of,
    product_with,
    rank_of,
    same_sizes,
    shape_of,
    through,
    unwidened,
)

COMPOSITE = "rope"
ANCHORS = (aten.cat.default, aten.view_as_real.default)


@dataclass(frozen=True)
class _Turn:
    """A rotation: its input, its tables, and the node of its result."""

    input: fx.Node | tuple[fx.Node, fx.Node]  # or its halves
    cos: fx.Node
    sin: fx.Node | None  # None if `cos` is complex and contains both
    interleaved: bool
    output: fx.Node
    inside: tuple[fx.Node, ...]
    dims: int | None = None

    def grown(self, output: fx.Node, **changes: Any) -> _Turn:
        """Return the rotation with another result node."""
        return replace(self, output=output, inside=(*self.inside, self.output), **changes)


def match(anchor: fx.Node, around: Surroundings) -> Match | None:
    """Return the rotation around a concatenation of two parts."""
    if is_call(anchor, aten.view_as_real.default):
        turn = _by_complex(anchor, around)
    else:
        join = _joined(anchor, around)
        turn = join and (_by_halves(*join) or _by_swapping(*join, around))
    if turn is None:
        return None
    turn = _partial(_rounded(turn, around), around)
    return Match(turn.output, turn.inside, _writer(turn))


@dataclass(frozen=True)
class _Join:
    """Two tensors joined as pairs: halves, or interleaved."""

    first: Any
    second: Any
    interleaved: bool


def _joined(
    cat: fx.Node, around: Surroundings
) -> tuple[_Join, fx.Node, tuple[fx.Node, ...]] | None:
    given = arguments(cat)
    parts = given["tensors"]
    if len(parts) != 2 or not last_axis(given["dim"], cat):
        return None
    if all(is_call(p, aten.unsqueeze.default) for p in parts):
        flat = around.only_user(cat)
        axes = [arguments(p)["dim"] for p in parts]
        if not all(last_axis(axis, p) for axis, p in zip(axes, parts, strict=True)):
            return None
        *lead, pairs, two = shape_of(cat)
        if not is_view(flat) or not same_sizes(shape_of(flat), (*lead, pairs * two)):
            return None
        first, second = (arguments(p)["self"] for p in parts)
        return _Join(first, second, True), flat, (*parts, cat)
    return _Join(parts[0], parts[1], False), cat, ()


def _pairs(first: Part | None, second: Part | None, interleaved: bool) -> Any:
    """Return the node whose pairs the two parts are."""
    if first is None or second is None or first.base is not second.base:
        return None
    width = shape_of(first.base)[-1]
    if interleaved:
        wanted = (Part(first.base, 0, width, 2), Part(first.base, 1, width, 2))
    else:
        half = width // 2
        wanted = (Part(first.base, 0, half, 1), Part(first.base, half, width, 1))
    return first.base if (first, second) == wanted else None


def _by_swapping(
    join: _Join, rotated: fx.Node, inside: tuple[fx.Node, ...], around: Surroundings
) -> _Turn | None:
    """`x * cos + cat(-second, first) * sin`."""
    if not is_call(join.first, aten.neg.default):
        return None
    negated = arguments(join.first)["self"]
    base = _pairs(part_of(join.second), part_of(negated), join.interleaved)
    if base is None:
        return None
    inside = (join.first, *inside)
    user = around.only_user(rotated)
    while user is not None and cast_from(user) is rotated:
        rotated, inside = user, (*inside, rotated)
        user = around.only_user(rotated)
    by_sin = product_with(user, lambda factor: factor is rotated)
    total = around.only_user(user) if user is not None else None
    terms = operands(total, aten.add.Tensor)
    if by_sin is None or terms is None:
        raise Mismatch(f"%{rotated.name} swaps the pairs, but is not scaled and added to them")
    other = terms[1] if terms[0] is user else terms[0]
    by_cos = product_with(other, lambda factor: unwidened(factor) is unwidened(base))
    if by_cos is None:
        raise Mismatch(f"%{other.name} is added, which is not a product with the same features")
    if not is_tensor(by_cos[1]) or not is_tensor(by_sin[1]):
        raise Mismatch("cosine and sine are not tensors")
    return _Turn(
        unwidened(base),
        by_cos[1],
        by_sin[1],
        join.interleaved,
        total,
        (*inside, rotated, user, other),
    )


def _by_halves(join: _Join, joined: fx.Node, inside: tuple[fx.Node, ...]) -> _Turn | None:
    """`cat(first * cos - second * sin, second * cos + first * sin)`."""
    minus = operands(join.first, aten.sub.Tensor)
    plus = operands(join.second, aten.add.Tensor)
    if minus is None or plus is None:
        return None
    down = [operands(term, aten.mul.Tensor) for term in minus]
    up = [operands(term, aten.mul.Tensor) for term in plus]
    if None in down or None in up:
        return None
    for first, cos in _both_ways(down[0]):
        for second, sin in _both_ways(down[1]):
            source = _halves(first, second, join.interleaved)
            if source is None:
                continue
            if not _is_other_row(up, first, second, cos, sin):
                raise Mismatch("the two rows turn by different angles, or other features")
            passed = (*minus, *plus, join.first, join.second, *inside)
            return _Turn(source, cos, sin, join.interleaved, joined, passed)
    return None


def _halves(first: Any, second: Any, interleaved: bool) -> Any:
    """Return the source of the pairs; or both parts, if neighbours become halves."""
    parts = part_of(unwidened(first)), part_of(unwidened(second))
    base = _pairs(*parts, interleaved)
    if base is not None:
        return unwidened(base)
    if not interleaved and _pairs(*parts, True) is not None:
        return first, second
    return None


def _both_ways(factors: Any) -> list[tuple[Any, Any]]:
    return [(factors[0], factors[1]), (factors[1], factors[0])]


def _is_other_row(up: list[Any], first: Any, second: Any, cos: Any, sin: Any) -> bool:
    wanted = [{second, cos}, {first, sin}]
    rows = [set(factors) for factors in up]
    return rows in (wanted, wanted[::-1])


def _by_complex(real: fx.Node, around: Surroundings) -> _Turn | None:
    """`view_as_real(view_as_complex(pairs) * freqs)`, flattened."""
    product = arguments(real)["self"]
    factors = product_with(product, lambda n: is_call(n, aten.view_as_complex.default))
    base = paired_from(arguments(factors[0])["self"]) if factors else None
    if factors is None or base is None or not is_tensor(factors[1]):
        return None
    flat = around.only_user(real)
    if not is_view(flat) or not same_sizes(shape_of(flat), shape_of(base)):
        raise Mismatch(f"%{real.name} is not laid out as the features were")
    return _Turn(unwidened(base), factors[1], None, True, flat, (product, real))


def _rounded(turn: _Turn, around: Surroundings) -> _Turn:
    """Include the cast back to the dtype of the input, if there is one."""
    if isinstance(turn.input, tuple) or dtype_of(turn.output) == dtype_of(turn.input):
        return turn
    after = around.only_user(turn.output)
    if cast_from(after) is turn.output and dtype_of(after) == dtype_of(turn.input):
        return turn.grown(after)
    return turn


def _partial(turn: _Turn, around: Surroundings) -> _Turn:
    """Include the concatenation with features that are not rotated, if it comes next."""
    after = around.only_user(turn.output)
    if not is_call(after, aten.cat.default) or not last_axis(arguments(after)["dim"], after):
        return turn
    parts = arguments(after)["tensors"]
    if len(parts) != 2 or parts[0] is not turn.output:
        return turn
    if shape_of(parts[1])[-1] == 0:
        return turn.grown(after)
    turned, passed = part_of(turn.input), part_of(parts[1])
    if turned is None or passed is None or turned.base is not passed.base:
        return turn
    width, dims = shape_of(turned.base)[-1], turned.stop
    appended = (Part(turned.base, 0, dims, 1), Part(turned.base, dims, width, 1))
    if (turned, passed) != appended:
        return turn
    return turn.grown(after, input=turned.base, dims=dims)


def _writer(turn: _Turn) -> Callable[[Writer], fx.Node]:
    def write(writer: Writer) -> fx.Node:
        given = turn.input
        if isinstance(given, tuple):
            given = writer.call(aten.cat.default, list(given), -1)
        input = writer.cast(given, dtype_of(turn.output))
        cos, sin = turn.cos, turn.sin
        if sin is None:
            both = writer.call(aten.view_as_real.default, cos)
            cos, sin = (writer.call(aten.select.int, both, -1, at) for at in (0, 1))
        tables = [_table(writer, table, rank_of(input)) for table in (cos, sin)]
        return writer.call(composites.rope, input, *tables, turn.dims, turn.interleaved)

    return write


def _table(writer: Writer, table: fx.Node, rank: int) -> fx.Node:
    """Return a table of the rank of the input, or `[seq, width]`; other ranks mean batches."""
    table = through(table)
    while 2 < rank_of(table) < rank:
        table = writer.call(aten.unsqueeze.default, table, 0)
    return table
