"""Recognize softmax attention: one torch op with repeated keys, or separate ops."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from ...errors import target_name
from ...fx.editing import Writer
from ...torch_compat import aten
from . import composites
from .causal import causal_window
from .pattern import (
    FLOATS,
    Match,
    Mismatch,
    Surroundings,
    arguments,
    cast_from,
    dtype_of,
    is_call,
    is_number,
    is_tensor,
    is_view,
    last_axis,
    operands,
    rank_of,
    same_sizes,
    shape_of,
    through,
    unwidened,
)

COMPOSITE = "scaled_dot_product_attention"
ANCHORS = (aten.scaled_dot_product_attention.default, aten._softmax.default)
_PRODUCTS = (aten.matmul.default, aten.bmm.default)
# Large enough that in float32 every other logit is lost beside it, or its softmax is zero.
_OUT_OF_REACH = -1e9


def match(anchor: fx.Node, around: Surroundings) -> Match | None:
    """Return the attention around a softmax, or the one that export did not decompose."""
    if is_call(anchor, aten.scaled_dot_product_attention.default):
        return _whole(anchor)
    if not last_axis(arguments(anchor)["dim"], anchor):
        return None
    weighted = _weighted(anchor, around)
    if weighted is None:
        return None
    logits = _Logits([anchor, *weighted.passed])
    logits.read(arguments(anchor)["self"])
    if (logits.sinks is None) == weighted.dropped:
        raise Mismatch("a column joins the softmax or is dropped from it, but not both")
    output = weighted.output
    query, key = logits.factors
    value = arguments(output)["mat2" if is_call(output, aten.bmm.default) else "other"]
    if {rank_of(n) for n in (query, key, value)} not in ({4}, {3}):
        raise Mismatch(f"the query has {rank_of(query)} axes, not 3 or 4")
    if {dtype_of(n) for n in (query, key, value)} != {dtype_of(output)}:
        raise Mismatch("query, key, value and result have different dtypes")
    if dtype_of(query) not in FLOATS:
        raise Mismatch(f"the query is {dtype_of(query)}")
    return Match(output, logits.inside, _writer(logits, value, output))


def _whole(node: fx.Node) -> Match:
    """Match the torch op; keys are read before they are repeated for each group of heads."""
    given = arguments(node)
    if given["dropout_p"]:
        raise Mismatch(f"it drops weights with probability {given['dropout_p']}")
    query, key, value = (given[name] for name in ("query", "key", "value"))
    plain = untiled(key), untiled(value)
    is_tiled = not given["enable_gqa"] and None not in plain and _same_heads(*plain)
    key, value = plain if is_tiled else (key, value)
    window = None
    if not given["is_causal"] and _is_contract(query, key, value):
        window = causal_window(given["attn_mask"], shape_of(query)[2], shape_of(key)[2])
    if not is_tiled and window is None:
        return Match(node, kept=True)

    def write(writer: Writer) -> fx.Node:
        if window is not None:
            width = shape_of(query)[3]
            scale = width**-0.5 if given["scale"] is None else given["scale"]
            facts = (None, None, scale, True, window)
            return writer.call(composites.attention, query, key, value, *facts)
        options = {name: given[name] for name in ("attn_mask", "is_causal", "scale")}
        target = aten.scaled_dot_product_attention.default
        return writer.call(target, query, key, value, **options, enable_gqa=True)

    return Match(node, (), write, kept=True)


def _same_heads(key: fx.Node, value: fx.Node) -> bool:
    return same_sizes(shape_of(key)[:3], shape_of(value)[:3])


def _is_contract(query: fx.Node, key: fx.Node, value: fx.Node) -> bool:
    """Whether operands are `[batch, heads, length, width]` with whole groups of query heads."""
    given = (query, key, value)
    if {rank_of(n) for n in given} != {4} or len({dtype_of(n) for n in given}) > 1:
        return False
    own, shared, width = shape_of(query)[1], shape_of(key)[1], shape_of(query)[3]
    is_known = all(isinstance(n, int) for n in (own, shared, width))
    is_one_batch = same_sizes(shape_of(query)[:1], shape_of(key)[:1])
    is_group = is_known and width > 0 and shared > 0 and own % shared == 0
    return is_group and is_one_batch and _same_heads(key, value) and dtype_of(query) in FLOATS


def untiled(node: Any) -> fx.Node | None:
    """Return the `[B, Nkv, T, D]` tensor whose heads a node repeats in place, else None."""
    node = through(node)
    if is_call(node, composites.repeat_heads):
        repeated: fx.Node = arguments(node)["rows"]
        return repeated
    if not is_view(node) or rank_of(node) != 4:
        return None
    spread = through(arguments(node)["self"])
    if not is_call(spread, aten.expand.default) or rank_of(spread) != 5:
        return None
    single = through(arguments(spread)["self"])
    if not is_call(single, aten.unsqueeze.default) or arguments(single)["dim"] not in (2, -3):
        return None
    source: fx.Node = arguments(single)["self"]
    batch, heads, copies, *matrix = shape_of(spread)
    if not same_sizes(shape_of(source), (batch, heads, *matrix)):
        return None
    if not same_sizes(shape_of(node), (batch, heads * copies, *matrix)):
        return None
    return source


@dataclass(frozen=True)
class _Weighted:
    """The nodes from the softmax to the product with the values."""

    output: fx.Node
    passed: tuple[fx.Node, ...]
    dropped: bool  # whether the last column of the weights was dropped


def _weighted(softmax: fx.Node, around: Surroundings) -> _Weighted | None:
    """Return the product with the values, or None if there is none."""
    passed: list[fx.Node] = []
    node, dropped = softmax, False
    while True:
        readers = around.users(node)
        products = [r for r in readers if is_call(r, *_PRODUCTS) and r.args[0] is node]
        if products and len(readers) > 1:
            others = [f"%{r.name}" for r in readers if r is not products[0]]
            raise Mismatch(f"the weights are read by {', '.join(others)} too")
        if products:
            return _Weighted(products[0], tuple(passed), dropped)
        follower = next((r for r in readers if _hands_on(r, node)), None)
        if follower is None:
            _refuse_folded(readers, node, around)
            return None
        if len(readers) > 1:
            if _weighted(follower, around) is None:
                return None
            others = [f"%{r.name}" for r in readers if r is not follower]
            raise Mismatch(f"the weights are read by {', '.join(others)} too")
        dropped = dropped or is_call(follower, aten.slice.Tensor)
        passed.append(follower)
        node = follower


def _refuse_folded(readers: list[fx.Node], node: fx.Node, around: Surroundings) -> None:
    """Raise if the weights are multiplied with values after their leading axes change."""
    for reader in readers:
        if is_view(reader) and same_sizes(shape_of(reader)[-2:], shape_of(node)[-2:]):
            product = around.only_user(reader)
            if is_call(product, *_PRODUCTS):
                raise Mismatch(f"%{reader.name} folds heads and batch between softmax and values")


def _hands_on(reader: fx.Node, node: fx.Node) -> bool:
    """Whether a reader only copies, casts, or drops the last column."""
    if through(reader) is through(node) or cast_from(reader) is node:
        return True
    if not is_call(reader, aten.slice.Tensor):
        return False
    given, width = arguments(reader), shape_of(node)[-1]
    whole = (given["start"] or 0) == 0 and given["step"] == 1
    end = given["end"]
    one_less = end == -1 or (isinstance(width, int) and end == width - 1)
    return last_axis(given["dim"], node) and whole and one_less


@dataclass
class _Logits:
    """The facts about the logits, collected upwards from the softmax."""

    inside: list[fx.Node]
    scale: float = 1.0
    # A summand; or a condition, and the summands where it is true and where it is false.
    masks: list[tuple[fx.Node, tuple[float, float] | None]] = field(default_factory=list)
    sinks: fx.Node | None = None
    factors: tuple[fx.Node, fx.Node] = ()  # type: ignore[assignment]  # until the product is found

    def read(self, node: Any) -> None:
        """Follow the logits up to the product of queries and keys."""
        node = self._without_sinks(node)
        while not is_call(node, *_PRODUCTS):
            self.inside.append(node)
            node = self._step(node)
        self.inside.append(node)
        given = arguments(node)
        self.factors = given["self"], given["mat2" if is_call(node, aten.bmm.default) else "other"]

    def _step(self, node: fx.Node) -> fx.Node:
        source = through(node)
        if source is not node:
            return source
        if cast_from(node) is not None and dtype_of(node) == torch.float32:
            return cast_from(node)
        if is_call(node, aten.add.Tensor):
            return self._masked(node)
        if is_call(node, aten.where.self):
            return self._filled(node)
        if is_call(node, aten.mul.Tensor, aten.div.Tensor):
            return self._scaled(node)
        raise Mismatch(f"%{node.name} ({target_name(node.target)}) makes the logits")

    def _masked(self, node: fx.Node) -> fx.Node:
        terms = operands(node, aten.add.Tensor)
        if terms is None or not all(is_tensor(term) for term in terms):
            raise Mismatch(f"%{node.name} adds an operand that is not a mask")
        # If neither is one, the first is followed, and the report names the obstacle.
        logits, mask = terms[::-1] if _leads_to_product(terms[1]) else terms
        self._add_mask(mask, None)
        return logits

    def _filled(self, node: fx.Node) -> fx.Node:
        given = arguments(node)
        hidden = _filling(given["self"]) is not None  # else the condition selects the visible
        fill, logits = (given["self"], given["other"])[:: 1 if hidden else -1]
        number = _filling(fill)
        if number is None or not is_tensor(logits):
            raise Mismatch(f"%{node.name} chooses between logits and something else")
        if not _is_out_of_reach(number, node):
            raise Mismatch(f"the mask fills in {number}, which other logits may reach")
        self._add_mask(given["condition"], (number, 0.0) if hidden else (0.0, number))
        return logits

    def _add_mask(self, mask: fx.Node, choice: tuple[float, float] | None) -> None:
        if self.scale != 1.0:
            raise Mismatch("the mask is added before the scale")
        self.masks.append((mask, choice))

    def _scaled(self, node: fx.Node) -> fx.Node:
        given = arguments(node)
        factor = given["other"]
        if not is_number(factor):
            raise Mismatch(f"%{node.name} scales the logits by a factor that is not constant")
        self.scale *= float(factor) if is_call(node, aten.mul.Tensor) else 1.0 / float(factor)
        return given["self"]

    def _without_sinks(self, node: fx.Node) -> fx.Node:
        """Skip the column of sinks, and the subtraction of the largest logit before it."""
        node = self._unshifted(node)
        inner = unwidened(node)
        if not is_call(inner, aten.cat.default):
            return node
        if inner is not node:
            self.inside.append(node)
        given = arguments(inner)
        if len(given["tensors"]) != 2 or not last_axis(given["dim"], inner):
            raise Mismatch(f"%{inner.name} joins logits, but no column of sinks")
        logits, column = given["tensors"]
        self.inside.append(inner)
        self.sinks = _sinks(column)
        return logits

    def _unshifted(self, node: fx.Node) -> fx.Node:
        terms = operands(node, aten.sub.Tensor)
        if terms is None:
            return node
        largest = terms[1]
        if is_call(largest, operator.getitem):
            largest, index = largest.args
            if index != 0 or not is_call(largest, aten.max.dim):
                return node
        elif not is_call(largest, aten.amax.default):
            return node
        given = arguments(largest)
        if given["self"] is not terms[0] or not given["keepdim"]:
            return node
        self.inside += [node, terms[1], largest]
        return terms[0]


def _leads_to_product(node: Any) -> bool:
    """Whether a node is a product, possibly scaled, masked and copied."""
    while is_tensor(node):
        if is_call(node, *_PRODUCTS):
            return True
        step = unwidened(node)
        if step is node:
            if not is_call(
                node, aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.where.self
            ):
                return False
            given = arguments(node)
            step = given["self"]
            if is_call(node, aten.where.self) and _filling(step) is not None:
                step = given["other"]
        node = step
    return False


def _filling(node: Any) -> float | None:
    """Return the number in a tensor of one element."""
    node = through(node)
    if is_call(node, aten.scalar_tensor.default):
        given = arguments(node)["s"]
    elif is_call(node, aten.full.default):
        given = arguments(node)["fill_value"]
    else:
        return None
    # In the dtype of the logits: -1e9 is an infinity in float16.
    return float(torch.tensor(given, dtype=dtype_of(node))) if is_number(given) else None


def _sinks(column: Any) -> fx.Node:
    """Return the tensor with one number per head that was expanded to a column of logits."""
    node = column
    while is_call(node, aten.expand.default, aten.unsqueeze.default) or is_view(node):
        node = through(arguments(node)["self"])
    heads = shape_of(column)[1] if rank_of(column) == 4 else None
    if not is_tensor(node) or not same_sizes(shape_of(node), (heads,)):
        raise Mismatch(f"%{column.name} joins the logits, but is not one number per head")
    return node


def _writer(logits: _Logits, value: fx.Node, output: fx.Node) -> Callable[[Writer], fx.Node]:
    def write(writer: Writer) -> fx.Node:
        query, key = logits.factors[0], _transposed(writer, logits.factors[1])
        plain = untiled(key), untiled(value)
        keys, values = (key, value) if None in plain else plain
        window = _window(logits, query, key)
        mask = None if window is not None else _mask(writer, logits, query)
        given = [query, keys, values, mask]
        if rank_of(query) == 3:  # [heads, length, width]
            given = [n and writer.call(aten.unsqueeze.default, n, 0) for n in given]
            if mask is not None and rank_of(mask) != 3:
                given[3] = mask
        scale = 1.0 if math.isclose(logits.scale, 1.0, rel_tol=1e-12) else logits.scale
        causal = () if window is None else (True, window)
        result = writer.call(composites.attention, *given, logits.sinks, scale, *causal)
        if rank_of(query) == 3:
            return writer.call(aten.squeeze.dims, result, [0])
        return result

    return write


def _window(logits: _Logits, query: fx.Node, key: fx.Node) -> int | None:
    """Return the window if the only mask is causal, else None."""
    if len(logits.masks) != 1 or rank_of(query) != 4:
        return None
    (mask, choice), lengths = logits.masks[0], (shape_of(query)[2], shape_of(key)[2])
    if choice is not None:
        return None if choice[0] else causal_window(mask, *lengths)
    mask = unwidened(mask)
    if not is_call(mask, aten.where.self):
        return None
    given = arguments(mask)
    shown, hidden = _filling(given["self"]), _filling(given["other"])
    if shown != 0.0 or hidden is None or not _is_out_of_reach(hidden, mask):
        return None
    return causal_window(given["condition"], *lengths)


def _is_out_of_reach(number: float, logits: fx.Node) -> bool:
    """Whether no other logit of this dtype is as low."""
    return number <= _OUT_OF_REACH or number <= torch.finfo(dtype_of(logits)).min


def _transposed(writer: Writer, node: fx.Node) -> fx.Node:
    """Return the keys, `[..., length, width]`, from the second factor of the logits."""
    node = through(node)
    rank = rank_of(node)
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    if not is_call(node, aten.permute.default):
        return writer.call(aten.permute.default, node, swapped)
    given = arguments(node)
    axes = [given["dims"][axis] % rank for axis in swapped]
    source: fx.Node = given["self"]
    if axes == list(range(rank)):
        return source
    return writer.call(aten.permute.default, source, axes)


def _mask(writer: Writer, logits: _Logits, query: fx.Node) -> fx.Node | None:
    """Combine all masks to one that is added."""
    added: fx.Node | None = None
    for mask, choice in logits.masks:
        term = mask
        if choice is not None:
            numbers = [writer.filled(query, [], number) for number in choice]
            term = writer.call(aten.where.self, mask, *numbers)
        added = term if added is None else writer.call(aten.add.Tensor, added, term)
    return added
