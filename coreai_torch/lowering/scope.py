"""The values that the nodes of one FX graph were lowered to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.fx as fx

from ..capture.value_ranges import Ranges
from ..ir.build import Build
from ..ir.dialect import Value


@dataclass
class Scope:
    """The values of one graph.

    A node is stored as one of: a `Value`; a `torch.Tensor`, which is a constant that no op has
    been emitted for yet; a Python number, string or None that was folded; a graph module; a
    list of these for several results.
    """

    names: Mapping[fx.Node, str] = field(default_factory=dict)
    nodes: dict[fx.Node, Any] = field(default_factory=dict)
    by_name: dict[str, fx.Node] = field(default_factory=dict)

    @cached_property
    def ranges(self) -> Ranges:
        """The ranges of the integers in the graph of the nodes, inferred at first use."""
        constants = {n.name: v for n, v in self.nodes.items() if isinstance(v, torch.Tensor)}
        ranges = Ranges(constants)
        for node in next(iter(self.nodes)).graph.nodes:
            if node.op == "call_function":
                ranges.infer(node)
        return ranges

    def record(self, node: fx.Node, value: Any) -> None:
        """Store what a node was lowered to."""
        self.nodes[node] = value
        self.by_name[node.name] = node

    def resolve(self, given: Any) -> Any:
        """Replace nodes by what they were lowered to; constants stay tensors."""
        if isinstance(given, fx.Node):
            return self.nodes[given]
        return fx.node.map_arg(given, lambda n: self.nodes[n])

    def values_of(self, given: Any) -> Any:
        """Replace nodes by what they were lowered to; constants become values."""
        if isinstance(given, fx.Node):
            return self.value(given)
        return fx.node.map_arg(given, self.value)

    def value(self, node: fx.Node) -> Any:
        """Return the value of a node; a constant is emitted at its first use."""
        return self._emit(self.nodes[node], self.names.get(node, node.name))

    def _emit(self, stored: Any, name: str) -> Any:
        if isinstance(stored, torch.Tensor):
            return Build.current().weight(stored, name)
        if isinstance(stored, list | tuple):
            return [self._emit(part, name) for part in stored]
        return stored


class ValuesMap(Mapping[str, Value]):
    """A scope as the name-keyed mapping that `(values_map, node, loc)` lowerings read.

    A node with several results appears under `name#0`, `name#1`, ... .
    """

    def __init__(self, scope: Scope, lower_subgraph: Callable[..., list[Any]]) -> None:
        self.scope, self.lower_subgraph = scope, lower_subgraph

    def __getitem__(self, name: str) -> Value:
        base, _, index = name.partition("#")
        value = self.scope.value(self.scope.by_name[base])
        if not index:
            return value
        if not isinstance(value, list) or int(index) >= len(value):
            raise KeyError(name)  # as a dictionary would, for `in` and `get` too
        return value[int(index)]

    def __iter__(self) -> Iterator[str]:
        for node, stored in self.scope.nodes.items():
            if isinstance(stored, list | tuple):
                yield from (f"{node.name}#{i}" for i in range(len(stored)))
            else:
                yield node.name

    def __len__(self) -> int:
        return sum(1 for _ in self)
