"""Queries on an FX graph for patterns: arguments by name, slices, casts, readers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...errors import target_name
from ...fx.editing import Writer
from ...torch_compat import aten, schema_of

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_IDENTITIES = (aten.alias.default, aten.clone.default, aten.detach.default)
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


class Mismatch(Exception):  # noqa: N818  not an error: it ends one attempt to match
    """A near miss of a pattern; the message gives the reason."""


@dataclass(frozen=True)
class Match:
    """A part of the graph that computes a composite."""

    output: fx.Node  # the node that the composite replaces
    inside: Collection[fx.Node] = ()  # only the match may read these
    write: Callable[[Writer], fx.Node] | None = None  # adds the composite; None if it exists
    kept: bool = False  # export did not decompose it


class Surroundings:
    """The graph around a node, as patterns query it."""

    def __init__(
        self,
        live: set[fx.Node],
        weights: Collection[fx.Node],
        regions: Mapping[fx.Node, int],
    ) -> None:
        self.live = live
        self.weights = weights  # nodes that depend on parameters, buffers and constants alone
        self._regions = regions  # the externalized call of each node

    def users(self, node: fx.Node) -> list[fx.Node]:
        """Return the readers of a node, without assertions and dead nodes."""
        return [user for user in node.users if user in self.live]

    def only_user(self, node: fx.Node) -> fx.Node | None:
        """Return the only reader of a node, else None."""
        users = self.users(node)
        return users[0] if len(users) == 1 and users[0].op == "call_function" else None

    def check(self, match: Match) -> None:
        """Raise if inner nodes are read elsewhere, or if a boundary cuts the match."""
        inside = set(match.inside)
        for node in match.inside:
            for user in self.users(node):
                if user is not match.output and user not in inside:
                    raise Mismatch(f"%{node.name}, inside of it, is read by {_reader(user)} too")
            if self._regions.get(node) != self._regions.get(match.output):
                raise Mismatch("the boundary of an externalized module runs through it")


def _reader(user: fx.Node) -> str:
    if user.op == "output":
        return "the caller, who gets it as an output or state,"
    return f"%{user.name} ({target_name(user.target)})"


def is_call(node: Any, *targets: Any) -> bool:
    """Whether a node calls one of these targets."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


def arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a node by schema name, including `self`."""
    found: dict[str, Any] = {}
    for place, argument in enumerate(schema_of(node.target).arguments):
        if place < len(node.args):
            found[argument.name] = node.args[place]
        else:
            found[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return found


def shape_of(node: fx.Node) -> tuple[Any, ...]:
    """Return the sizes, including symbolic ones."""
    return tuple(node.meta["val"].shape)


def dtype_of(node: fx.Node) -> torch.dtype:
    """Return the dtype of a tensor."""
    return node.meta["val"].dtype


def rank_of(node: fx.Node) -> int:
    """Return the number of axes."""
    return len(shape_of(node))


def is_tensor(node: Any) -> bool:
    """Whether an argument is a node with one tensor as its value."""
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def is_number(given: Any) -> bool:
    """Whether an argument is a plain number."""
    return isinstance(given, int | float) and not isinstance(given, bool)


def same_sizes(one: Any, other: Any) -> bool:
    """Whether sizes are known to be equal."""
    return len(one) == len(other) and all(
        statically_known_true(a == b) for a, b in zip(one, other, strict=True)
    )


def last_axis(dim: int, node: fx.Node) -> bool:
    """Whether an axis of a node is its last."""
    return dim in (-1, rank_of(node) - 1)


def is_view(node: Any) -> bool:
    """Whether a node is a view or reshape of the same elements."""
    return is_call(node, *_VIEWS)


def through(node: Any) -> Any:
    """Follow copies and aliases to their source."""
    while is_call(node, *_IDENTITIES) or (
        (is_view(node) or _is_slice(node))
        and same_sizes(shape_of(node), shape_of(arguments(node)["self"]))
    ):
        node = arguments(node)["self"]
    return node


def _is_slice(node: Any) -> bool:
    """Return whether a node reads consecutive elements: all of them, if the sizes are equal.

    torch keeps the slices of `x[:, :, None, :, :]` if the length is dynamic.
    """
    return is_call(node, aten.slice.Tensor) and arguments(node)["step"] == 1


def cast_from(node: Any) -> Any:
    """Return the operand of a cast between float dtypes, else None."""
    if not is_call(node, aten._to_copy.default, torch.ops.prims.convert_element_type.default):
        return None
    source = arguments(node).get("self", arguments(node).get("a"))
    return source if {dtype_of(source), dtype_of(node)} <= {*FLOATS} else None


def unwidened(node: Any) -> Any:
    """Follow copies, aliases and widening casts to their source."""
    node = through(node)
    while (source := cast_from(node)) is not None and dtype_of(node) == torch.float32:
        node = through(source)
    return node


def operands(node: Any, *targets: Any) -> tuple[Any, Any] | None:
    """Return the two operands of a call of one of these targets without alpha, else None."""
    if not is_call(node, *targets):
        return None
    given = arguments(node)
    if given.get("alpha", 1) != 1:
        return None
    return given["self"], given["other"]


def product_with(node: Any, test: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    """Return the factors of a product; the first one passes the test."""
    factors = operands(node, aten.mul.Tensor, aten.mul.Scalar)
    if factors is None:
        return None
    one, other = factors
    if test(one):
        return one, other
    return (other, one) if test(other) else None


@dataclass(frozen=True)
class Part:
    """Elements `start, start + step, ...` below `stop` of the last axis of a node."""

    base: fx.Node
    start: int
    stop: int
    step: int


def part_of(node: Any) -> Part | None:
    """Return the slice of the last axis of another node that a node is, else None."""
    node = through(node)
    if is_call(node, aten.slice.Tensor):
        return _slice(node)
    if is_call(node, operator.getitem):
        return _piece(*node.args)
    if is_call(node, aten.select.int):
        given = arguments(node)
        return _one_of_pairs(given["self"], given["dim"], given["index"])
    if is_call(node, aten.squeeze.dim, aten.squeeze.dims) and is_call(
        source := arguments(node)["self"], aten.slice.Tensor
    ):
        given = arguments(source)
        single = given["end"] == given["start"] + 1 if is_number(given["end"]) else False
        return _one_of_pairs(given["self"], given["dim"], given["start"]) if single else None
    return None


def _slice(node: fx.Node) -> Part | None:
    given = arguments(node)
    base, width = given["self"], shape_of(given["self"])[-1]
    limits = [given["start"] or 0, width if given["end"] is None else given["end"], given["step"]]
    if not last_axis(given["dim"], base) or not all(isinstance(n, int) for n in (width, *limits)):
        return None
    start, stop = (min(n + width if n < 0 else n, width) for n in limits[:2])
    return Part(base, start, stop, limits[2])


def _piece(source: Any, index: int) -> Part | None:
    """Match one result of a split."""
    if is_call(source, aten.unbind.int):
        given = arguments(source)
        return _one_of_pairs(given["self"], given["dim"], index)
    if not is_call(source, aten.split_with_sizes.default, aten.split.Tensor):
        return None
    given = arguments(source)
    base = given["self"]
    sizes = given.get("split_sizes") or [value.shape[-1] for value in source.meta["val"]]
    if not last_axis(given["dim"], base) or not all(isinstance(n, int) for n in sizes):
        return None
    return Part(base, sum(sizes[:index]), sum(sizes[: index + 1]), 1)


def _one_of_pairs(pairs: fx.Node, dim: int, index: int) -> Part | None:
    """Match every other element, selected from a view of the features as pairs."""
    base = paired_from(pairs)
    if base is None or not last_axis(dim, pairs):
        return None
    return Part(base, index % 2, shape_of(base)[-1], 2)


def paired_from(node: Any) -> fx.Node | None:
    """Return the source of a view that puts pairs of neighbours on a new last axis."""
    if not is_view(node):
        return None
    base: fx.Node = arguments(node)["self"]
    width = shape_of(base)[-1] if rank_of(base) else None
    if not isinstance(width, int):
        return None
    return base if same_sizes(shape_of(node), (*shape_of(base)[:-1], width // 2, 2)) else None
