"""Add, replace and erase nodes of an FX graph, with the metadata that export would record."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.fx as fx

from ..torch_compat import FakeTensor, aten, enable_python_dispatcher

_ORIGIN = ("nn_module_stack", "stack_trace", "from_node")


class Writer:
    """Adds nodes before a place in a graph; they come from the same line as the node `like`."""

    def __init__(self, place: fx.Node, like: fx.Node | None = None) -> None:
        self._place, self._like = place, place if like is None else like
        self.added: list[fx.Node] = []

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a call, with the fake value that export would record."""
        with self._place.graph.inserting_before(self._place):
            node: fx.Node = self._place.graph.call_function(target, args, kwargs)
        self.added.append(node)
        node.meta = {key: self._like.meta[key] for key in _ORIGIN if key in self._like.meta}
        node.meta["val"] = _fake_result(node, self._like)
        return node

    def cast(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        """Cast a node to a dtype."""
        if node.meta["val"].dtype == dtype:
            return node
        return self.call(aten._to_copy.default, node, dtype=dtype)

    def filled(self, like: fx.Node, sizes: list[Any], number: float) -> fx.Node:
        """Add a tensor of one number, with the dtype and device of another tensor."""
        options = {"dtype": like.meta["val"].dtype, "device": like.meta["val"].device}
        return self.call(aten.full.default, sizes, number, **options)

    def split(self, source: fx.Node, sizes: Sequence[int], axis: int) -> list[fx.Node]:
        """Return the parts of an axis."""
        parts = self.call(aten.split_with_sizes.default, source, list(sizes), axis)
        return [self.call(operator.getitem, parts, place) for place in range(len(sizes))]

    def size(self, node: fx.Node, axis: int) -> Any:
        """Return the size of an axis: a number, or a node if it is dynamic."""
        extent = node.meta["val"].shape[axis]
        return extent if isinstance(extent, int) else self.call(aten.sym_size.int, node, axis)

    def forget(self) -> None:
        """Remove all added nodes."""
        for node in reversed(self.added):
            node.graph.erase_node(node)
        self.added.clear()


def _fake_result(call: fx.Node, like: fx.Node) -> Any:
    """Return what a call computes of the fake values of its operands."""
    args, kwargs = fx.node.map_arg((call.args, call.kwargs), lambda n: n.meta["val"])
    values = [node.meta.get("val") for node in (*call.all_input_nodes, like)]
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    with ExitStack() as stack:
        # Without it, torch 2.9 raises "Cannot call numel() on tensor with symbolic sizes/strides"
        # for aten.matmul.
        stack.enter_context(enable_python_dispatcher())
        if mode is not None:
            stack.enter_context(mode)
        if mode is not None and mode.shape_env is not None:
            # A pattern that is tried must not specialize a dynamic size.
            stack.enter_context(mode.shape_env.suppress_guards())
        return call.target(*args, **kwargs)


def replace(old: fx.Node, new: fx.Node) -> None:
    """Let the users of `old` read `new`, which gets its name; `old` stays.

    The signature of a program refers to its outputs by name.
    """
    old.replace_all_uses_with(new)
    old.name, new.name = new.name, old.name


def supersede(old: fx.Node, new: fx.Node) -> None:
    """Replace a node; erase it, and the calls that only it read."""
    replace(old, new)
    _erase_call(old)


def _erase_call(node: fx.Node) -> None:
    if node.op == "call_function" and not node.users:
        inputs = node.all_input_nodes
        node.graph.erase_node(node)
        for one in inputs:
            _erase_call(one)


def erase_unused(graph: fx.Graph, kept: Collection[str] = ()) -> None:
    """Erase the nodes, placeholders too, that no output depends on, except those named `kept`."""
    for node in reversed(list(graph.nodes)):
        if node.op != "output" and not node.users and node.name not in kept:
            graph.erase_node(node)


def output_of(graph: fx.Graph) -> fx.Node:
    """Return the output node."""
    node: fx.Node = next(iter(reversed(graph.nodes)))
    return node


def inline(
    call: fx.Node, traced: fx.GraphModule, inputs: Sequence[fx.Node], prefix: str
) -> list[fx.Node]:
    """Replace a call by the nodes of another graph, and return those that are its results.

    The constants of that graph become attributes whose names start with `prefix`.
    """
    graph, owner = call.graph, call.graph.owning_module
    placeholders = [n for n in traced.graph.nodes if n.op == "placeholder"]
    copies: dict[fx.Node, fx.Node] = dict(zip(placeholders, inputs, strict=True))
    with graph.inserting_before(call):
        for node in traced.graph.nodes:
            if node.op == "get_attr":
                name = f"{prefix}_{str(node.target).replace('.', '_')}"
                setattr(owner, name, operator.attrgetter(str(node.target))(traced))
                copies[node] = graph.create_node("get_attr", name)
                copies[node].meta = dict(node.meta)
            elif node.op == "call_function":
                copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [copies[n] for n in output_of(traced.graph).args[0]]
    if isinstance(call.meta.get("val"), torch.Tensor):
        replace(call, results[0])
    else:
        for item in list(call.users):
            replace(item, results[item.args[1]])
            graph.erase_node(item)
    graph.erase_node(call)
    return results
