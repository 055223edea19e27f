"""Lower the region of an externalized module to a graph, and its call to an invoke."""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import target_name
from ..ir import graph, types
from ..ir.build import Build
from ..ir.composite import declaration
from ..ir.dialect import Value, size
from ..passes.externalize.cut import Region
from ..passes.externalize.spec import Externalized
from ..passes.zero_size import may_be_empty
from .scope import Scope

LowerNodes = Callable[[Sequence[fx.Node], Scope, Sequence[Region]], None]
_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9]")
_SYMBOL = re.compile(r"\b[a-z]+\d+\b")


@dataclass(frozen=True)
class _Port:
    """A value that crosses the boundary: its name and its node."""

    name: str
    node: fx.Node


def emit(lower: LowerNodes, region: Region, scope: Scope) -> None:
    """Invoke the graph of the region, and record its results in the enclosing scope."""
    build = Build.current()
    crossing = _Crossing(region, scope)
    inputs, results = crossing.inputs, crossing.results
    nodes = [*crossing.outside.numbers, *region.body]
    operands = [scope.value(port.node) for port in inputs]
    text = _Text(crossing, scope)
    digest = text.digest(region.match, nodes, [str(o.type) for o in operands])
    key = (digest, any(may_be_empty(n) for n in region.body), *text.constants)
    if key not in build.shared_graphs:

        def body(arguments: Sequence[Value]) -> list[Value]:
            inner = crossing.inner_scope(arguments)
            lower(nodes, inner, region.nested)
            return [_value(inner, port.node) for port in results]

        build.shared_graphs[key] = graph.helper(
            f"{_title(region)}_{digest[:8]}",
            [graph.Port(p.name, o.type) for p, o in zip(inputs, operands, strict=True)],
            body,
            [port.name for port in results],
            private=region.match.composite is not None,
            no_inline=True,
            composite_decl=_declaration(region.match, inputs, results),
        )
    for port, value in zip(results, build.shared_graphs[key](*operands), strict=True):
        if port.node in region.body:
            scope.record(port.node, value)


def _title(region: Region) -> str:
    return ".".join(filter(None, (region.match.path, region.match.composite))) or "externalized"


def _declaration(match: Externalized, inputs: Sequence[_Port], results: Sequence[_Port]) -> Any:
    if match.composite is None:
        return None
    taken, given = ([port.name for port in ports] for ports in (inputs, results))
    return declaration(match.composite, taken, given, dict(match.attrs))


class _OwnNames:
    """The names of the parameters and buffers within the externalized module."""

    def __init__(self, region: Region, scope: Scope) -> None:
        owned, path = region.match.owned(), region.match.path
        self._order = {name: place for place, name in enumerate(owned)}
        self._scope = scope
        self._unpacked = region.weights
        self._by_node = {node: name for name, node in (*region.left, *region.own) if name in owned}
        self._by_tensor = {id(tensor): name for name, tensor in owned.items()}
        self._by_path = {f"{path}.{name}".lstrip("."): name for name in owned}
        # In the graph of a branch they are placeholders, with names that the exporter chose.
        self._by_placeholder = {
            _UNNAMEABLE.sub("_", at).lower(): n for at, n in self._by_path.items()
        }

    def of(self, node: fx.Node) -> str | None:
        """Return the name if the node is one of them; also if `export_fn` wrapped the model."""
        if node in self._unpacked:
            return self._unpacked[node]
        stored = self._scope.nodes.get(node)
        name = self._by_node.get(node) or self._by_tensor.get(id(stored))
        path = str(self._scope.names.get(node, ""))
        while name is None and path:
            name = self._by_path.get(path)
            path = path.partition(".")[2]
        return name or self._by_placeholder.get(node.name[2:] if node.op == "placeholder" else "")

    def place(self, name: str) -> float:
        """Return its place in the order of registration; an unpacked weight comes first."""
        if name in self._order:
            return self._order[name]
        home = name[: name.rfind(".") + 1]
        return min((at for n, at in self._order.items() if n.startswith(home)), default=0) - 0.5


class _Crossing:
    """The inputs, results and constants of a region."""

    def __init__(self, region: Region, scope: Scope) -> None:
        self._region, self._scope = region, scope
        self._names = _OwnNames(region, scope)
        self.outside = region.outside()
        self.constants: list[fx.Node] = []  # stored in the graph of the region
        self.inputs = self._inputs()
        self.results = self._results()

    def _inputs(self) -> list[_Port]:
        """Return parameters and buffers, other captured values, then the arguments of forward."""
        owned: list[_Port] = []
        captured: list[_Port] = []
        given = [_Port(name, node) for name, node in self._region.inputs]
        passed = {port.node for port in given}
        for node in self.outside.nodes:
            own = self._names.of(node)
            if node in passed:
                continue
            if not self._is_operand(self._scope.nodes[node], own):
                self.constants.append(node)
            elif own is not None:
                owned.append(_Port(own, node))
            else:
                captured.append(_Port(self._plain(node), node))
        owned.sort(key=lambda port: self._names.place(port.name))
        return _distinct([*owned, *captured, *given])

    def _is_operand(self, stored: Any, own: str | None) -> bool:
        """Whether a value is an operand; a plain boundary stores parameters and buffers inside."""
        weight = isinstance(stored, torch.Tensor) and own is not None
        return isinstance(stored, Value) or (weight and self._region.match.composite is not None)

    def _plain(self, node: fx.Node) -> str:
        return str(self._scope.names.get(node, node.name))

    def _results(self) -> list[_Port]:
        """Return the states that were written, in the order of the inputs, then the outputs."""
        region, names = self._region, self._names
        returned = [_Port(name, node) for name, node in region.outputs]
        # A node that is listed under two names keeps the first one.
        left = {node: name for name, node in reversed(region.left)}
        order = {name: place for place, (name, _) in enumerate(region.left)}
        others = [
            _Port(names.of(node) or left.get(node) or self._plain(node), node)
            for node in region.escaping()
            if all(node is not port.node for port in returned)
        ]
        others.sort(key=lambda port: order.get(port.name, -1))
        return _distinct([*others, *returned])

    def inner_scope(self, arguments: Sequence[Value]) -> Scope:
        """Return the scope for the nodes of the region."""
        inner = Scope(self._scope.names)
        for port, argument in zip(self.inputs, arguments, strict=True):
            if port.node not in inner.nodes:  # a tensor passed twice is read as the first
                inner.record(port.node, argument)
        for node, (source, axis) in self.outside.sizes.items():
            inner.record(node, size(inner.nodes[source], axis))
        for node in self.constants:
            inner.record(node, self._scope.nodes[node])
        return inner


def _distinct(ports: Sequence[_Port]) -> list[_Port]:
    taken = {port.name for port in ports}
    seen: set[str] = set()
    distinct = []
    for port in ports:
        name, count = port.name, 0
        while name in seen or (name != port.name and name in taken):
            count += 1
            name = f"{port.name}_{count}"
        seen.add(name)
        distinct.append(_Port(name, port.node))
    return distinct


def _value(inner: Scope, node: fx.Node) -> Value:
    value = inner.value(node)
    if isinstance(value, Value):
        return value
    return Build.current().number(value, types.scalar_dtype(value))


class _Text:
    """The text of a region; calls with equal texts and constants share one graph."""

    def __init__(self, crossing: _Crossing, scope: Scope) -> None:
        self.constants: list[Any] = []  # their contents are compared, but not part of the name
        self._names: dict[fx.Node, str] = {}
        self._symbols: dict[str, str] = {}
        self._ports = [(p.name, p.node) for p in (*crossing.inputs, *crossing.results)]
        for place, port in enumerate(crossing.inputs):
            self._names.setdefault(port.node, f"%{place}")
        for node, (source, axis) in crossing.outside.sizes.items():
            self._names[node] = f"size({self._names[source]}, {axis})"
        for node in crossing.constants:
            name = scope.names.get(node, node.name)
            self._names[node] = self._constant(scope.nodes[node], name)

    def digest(self, match: Externalized, nodes: Iterable[fx.Node], types: Sequence[str]) -> str:
        """Return a hash of the computation of the region."""
        lines = [match.path, str(match.composite), str(match.attrs), *types]
        for node in nodes:
            arguments = fx.node.map_arg((node.args, node.kwargs), lambda n: self._names[n])
            self._names[node] = f"%{len(self._names)}"
            promised = self._promised(node.meta.get("val"))
            lines.append(f"{target_name(node.target)} {arguments} {promised}")
        lines += [f"{name} {self._names[node]}" for name, node in self._ports]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _constant(self, stored: Any, name: str) -> str:
        if isinstance(stored, list | tuple):
            return str([self._constant(part, name) for part in stored])
        if isinstance(stored, torch.Tensor):
            self.constants.append(Build.current().constants.attribute(stored, name))
            return f"constant {stored.dtype} {list(stored.shape)}"
        if isinstance(stored, fx.GraphModule):  # a branch; it may contain branches
            parts = [m for m in stored.modules() if isinstance(m, fx.GraphModule)]
            return str([self._branch(part, name) for part in parts])
        return repr(stored)

    def _branch(self, module: fx.GraphModule, name: str) -> str:
        read = [n.target for n in module.graph.nodes if n.op == "get_attr"]
        parts = [operator.attrgetter(target)(module) for target in read]
        stored = [self._constant(p, name) for p in parts if isinstance(p, torch.Tensor)]
        return f"{module.code} {stored}"

    def _promised(self, val: Any) -> str:
        """Return the result types of a node, with symbols numbered in order of appearance."""
        if isinstance(val, list | tuple):
            return str([self._promised(part) for part in val])
        if not isinstance(val, torch.Tensor):
            return type(val).__name__
        shape = _SYMBOL.sub(lambda found: self._symbol(found[0]), str(list(val.shape)))
        return f"{val.dtype} {shape}"

    def _symbol(self, name: str) -> str:
        return self._symbols.setdefault(name, f"n{len(self._symbols)}")
