"""Reads computations off an FX graph: arguments by name, parts, casts, who reads what."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...errors import target_name
from ...torch_compat import aten, schema_of

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_IDENTITIES = (aten.alias.default, aten.clone.default, aten.detach.default)
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


class Mismatch(Exception):  # noqa: N818  no error: it says why something is left alone
    """It looks like the pattern, but is not; the message says why."""


class Writer:
    """Adds nodes to the graph, in the place of the one that is replaced."""

    def __init__(self, graph: fx.Graph, place: fx.Node) -> None:
        self._graph, self._place = graph, place
        self.added: list[fx.Node] = []

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A node for the call, with the value that the exporter would promise for it."""
        with self._graph.inserting_before(self._place):
            node = self._graph.call_function(target, args, kwargs)
        self.added.append(node)
        given = fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
        node.meta = {
            name: self._place.meta[name]
            for name in ("nn_module_stack", "stack_trace", "from_node")
            if name in self._place.meta
        }
        node.meta["val"] = _faked(target, self._place.meta["val"], *given)
        return node

    def cast(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        """The node in a dtype."""
        return (
            node if dtype_of(node) == dtype else self.call(aten._to_copy.default, node, dtype=dtype)
        )

    def filled(self, like: fx.Node, sizes: list[Any], number: float) -> fx.Node:
        """A tensor of one number, in the dtype and at the place of another."""
        options = {"dtype": dtype_of(like), "device": like.meta["val"].device}
        return self.call(aten.full.default, sizes, number, **options)

    def size(self, node: fx.Node, axis: int) -> Any:
        """The extent of an axis: a number, or a node if it varies."""
        extent = shape_of(node)[axis]
        return extent if isinstance(extent, int) else self.call(aten.sym_size.int, node, axis)

    def forget(self) -> None:
        """Take all of them out again."""
        for node in reversed(self.added):
            self._graph.erase_node(node)
        self.added.clear()


def _faked(target: Any, like: Any, args: Any, kwargs: Any) -> Any:
    mode = like.fake_mode
    if mode.shape_env is None:
        with mode:
            return target(*args, **kwargs)
    # The sizes are settled: trying a pattern must not pin one of them.
    with mode, mode.shape_env.suppress_guards():
        return target(*args, **kwargs)


@dataclass(frozen=True)
class Match:
    """A place in the graph that computes what a composite computes."""

    output: fx.Node  # its value is the composite's
    inside: Collection[fx.Node] = ()  # nobody else may read these
    write: Callable[[Writer], fx.Node] | None = None  # the composite's node; None: it is there
    kept: bool = False  # the exporter left it whole


class Surroundings:
    """What a pattern may ask of the graph around a node."""

    def __init__(
        self,
        live: set[fx.Node],
        weights: Collection[fx.Node],
        regions: Mapping[fx.Node, int],
    ) -> None:
        self.live = live
        self.weights = weights  # nodes that depend on parameters, buffers and constants alone
        self._regions = regions  # the externalized call that a node is traced in

    def users(self, node: fx.Node) -> list[fx.Node]:
        """Who reads a node; assertions and what nobody asks for do not count."""
        return [user for user in node.users if user in self.live]

    def only_user(self, node: fx.Node) -> fx.Node | None:
        """The one that reads it, if it is one."""
        users = self.users(node)
        return users[0] if len(users) == 1 and users[0].op == "call_function" else None

    def check(self, match: Match) -> None:
        """Refuse a match whose inside is read elsewhere, or that a boundary cuts in two."""
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
    """Whether it is a node that calls one of these."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


def arguments(node: fx.Node) -> dict[str, Any]:
    """A node's arguments by the names of its schema; `self` too."""
    found: dict[str, Any] = {}
    for place, argument in enumerate(schema_of(node.target).arguments):
        if place < len(node.args):
            found[argument.name] = node.args[place]
        else:
            found[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return found


def shape_of(node: fx.Node) -> tuple[Any, ...]:
    """The sizes, symbolic ones included."""
    return tuple(node.meta["val"].shape)


def dtype_of(node: fx.Node) -> torch.dtype:
    """The dtype of a tensor."""
    return node.meta["val"].dtype


def rank_of(node: fx.Node) -> int:
    """The number of axes."""
    return len(shape_of(node))


def is_tensor(node: Any) -> bool:
    """Whether it is a node that stands for one tensor."""
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def is_number(given: Any) -> bool:
    """Whether it is a plain number."""
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
    """Whether it lays out the same elements in other axes."""
    return is_call(node, *_VIEWS)


def through(node: Any) -> Any:
    """What a node copies or aliases, however often; itself if it does neither."""
    while is_call(node, *_IDENTITIES) or (
        is_view(node) and same_sizes(shape_of(node), shape_of(arguments(node)["self"]))
    ):
        node = arguments(node)["self"]
    return node


def cast_from(node: Any) -> Any:
    """What a node casts from one float dtype to another; None if it is no such cast."""
    if not is_call(node, aten._to_copy.default, torch.ops.prims.convert_element_type.default):
        return None
    source = arguments(node).get("self", arguments(node).get("a"))
    return source if {dtype_of(source), dtype_of(node)} <= {*FLOATS} else None


def unwidened(node: Any) -> Any:
    """What a node is a copy, alias or widening cast of: the same numbers."""
    node = through(node)
    while (source := cast_from(node)) is not None and dtype_of(node) == torch.float32:
        node = through(source)
    return node


def operands(node: Any, *targets: Any) -> tuple[Any, Any] | None:
    """The two operands of a call of one of these, which scales neither."""
    if not is_call(node, *targets):
        return None
    given = arguments(node)
    if given.get("alpha", 1) != 1:
        return None
    return given["self"], given["other"]


def product_with(node: Any, test: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    """The factors of a product, the first of which passes the test."""
    factors = operands(node, aten.mul.Tensor, aten.mul.Scalar)
    if factors is None:
        return None
    one, other = factors
    if test(one):
        return one, other
    return (other, one) if test(other) else None


@dataclass(frozen=True)
class Part:
    """Features `start, start + step, ...` below `stop` of a node's last axis."""

    base: fx.Node
    start: int
    stop: int
    step: int


def part_of(node: Any) -> Part | None:
    """The part of another node's last axis that a node is."""
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
    """One of the tensors that a split gives."""
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
    """One of each two neighbours, taken off a view of the features as pairs."""
    base = paired_from(pairs)
    if base is None or not last_axis(dim, pairs):
        return None
    return Part(base, index % 2, shape_of(base)[-1], 2)


def paired_from(node: Any) -> fx.Node | None:
    """What a node is a view of, with two neighbours on a last axis of their own."""
    if not is_view(node):
        return None
    base: fx.Node = arguments(node)["self"]
    width = shape_of(base)[-1] if rank_of(base) else None
    if not isinstance(width, int):
        return None
    return base if same_sizes(shape_of(node), (*shape_of(base)[:-1], width // 2, 2)) else None
