"""Turns the region of an externalized module into a graph, and its place into an invoke."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import target_name
from ..externalize.cut import Region, is_number
from ..externalize.spec import Match
from ..ir import graph, types
from ..ir.build import Build
from ..ir.composite import declaration
from ..ir.dialect import Value, size
from .scope import Scope

LowerNodes = Callable[[Sequence[fx.Node], Scope, Sequence[Region]], None]
_SYMBOL = re.compile(r"\b[a-z]+\d+\b")


@dataclass(frozen=True)
class _Port:
    """A value that crosses the boundary: what it is called, and the node that stands for it."""

    name: str
    node: fx.Node


def emit(lower: LowerNodes, region: Region, scope: Scope) -> None:
    """Invoke the region's graph here and hold its results in the scope around it."""
    build = Build.current()
    crossing = _Crossing(region, scope)
    inputs, results = crossing.inputs, crossing.results
    nodes = [*crossing.numbers, *region.body]
    operands = [scope.value(port.node) for port in inputs]
    text = _Text(crossing, scope)
    digest = text.digest(region.match, nodes, [str(o.type) for o in operands])
    key = (digest, *text.constants)
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
            scope.hold(port.node, value)


def _title(region: Region) -> str:
    return ".".join(filter(None, (region.match.path, region.match.composite))) or "externalized"


def _declaration(match: Match, inputs: Sequence[_Port], results: Sequence[_Port]) -> Any:
    if match.composite is None:
        return None
    taken, given = ([port.name for port in ports] for ports in (inputs, results))
    return declaration(match.composite, taken, given, dict(match.attrs))


class _OwnNames:
    """What the externalized module calls its parameters and buffers."""

    def __init__(self, match: Match, scope: Scope) -> None:
        owned = match.owned()
        self.order = {name: place for place, name in enumerate(owned)}
        self._scope = scope
        self._by_tensor = {id(tensor): name for name, tensor in owned.items()}
        self._by_path = {f"{match.path}.{name}".lstrip("."): name for name in owned}

    def of(self, node: fx.Node) -> str | None:
        """The name, if the node stands for one of them; also if `export_fn` wrapped the model."""
        name = self._by_tensor.get(id(self._scope.nodes.get(node)))
        path = str(self._scope.names.get(node, ""))
        while name is None and path:
            name = self._by_path.get(path)
            path = path.partition(".")[2]
        return name


class _Crossing:
    """What goes in and out of a region, and how the inside gets at everything else."""

    def __init__(self, region: Region, scope: Scope) -> None:
        self.region, self._scope = region, scope
        self._names = _OwnNames(region.match, scope)
        self.sizes: dict[fx.Node, tuple[fx.Node, int]] = {}  # extents of arguments
        self.numbers: dict[fx.Node, None] = {}  # sizes that are computed again inside, in order
        self.constants: dict[fx.Node, None] = {}  # all that is no value: the graph holds it itself
        self._owned: list[_Port] = []
        self._captured: list[_Port] = []
        given = [_Port(name, node) for name, node in region.inputs]
        self._met = {port.node for port in given}
        for node in region.operands():
            self._meet(node)
        self._owned.sort(key=lambda port: self._names.order[port.name])
        self.inputs = _distinct([*self._owned, *self._captured, *given])
        self.results = _results(region, self._names)

    def _meet(self, node: fx.Node) -> None:
        if node in self._met:
            return
        self._met.add(node)
        place = _size_of(self.region, node)
        if place is not None:
            self.sizes[node] = place
        elif is_number(node) and not isinstance(node.target, torch._ops.OpOverload):
            for needed in node.all_input_nodes:
                self._meet(needed)
            self.numbers[node] = None
        else:
            self._take(node)

    def _take(self, node: fx.Node) -> None:
        """Of a composite, parameters and buffers are operands; a plain boundary holds them."""
        held, own = self._scope.nodes[node], self._names.of(node)
        is_operand = isinstance(held, torch.Tensor) and self.region.match.composite is not None
        if own is not None and (is_operand or isinstance(held, Value)):
            self._owned.append(_Port(own, node))
        elif isinstance(held, Value):
            self._captured.append(_Port(node.name, node))
        else:
            self.constants[node] = None

    def inner_scope(self, arguments: Sequence[Value]) -> Scope:
        """The values that the nodes inside find, within the region's graph."""
        inner = Scope(self._scope.names)
        for port, argument in zip(self.inputs, arguments, strict=True):
            if port.node not in inner.nodes:  # a tensor passed twice is read as the first
                inner.hold(port.node, argument)
        for node, (source, axis) in self.sizes.items():
            inner.hold(node, size(inner.nodes[source], axis))
        for node in self.constants:
            inner.hold(node, self._scope.nodes[node])
        return inner


def _results(region: Region, names: _OwnNames) -> list[_Port]:
    """States that were written to, in the order of the inputs, then what forward returned."""
    returned = [_Port(name, node) for name, node in region.outputs]
    left = {node: name for name, node in reversed(region.left)}  # the first of two names
    order = {name: len(names.order) + place for place, (name, _) in enumerate(region.left)}
    others: list[tuple[int, _Port]] = []
    for node in region.escaping():
        if all(node is not port.node for port in returned):
            own = names.of(node)
            name = own or left.get(node, node.name)
            place = names.order[own] if own else order.get(name, -1)
            others.append((place, _Port(name, node)))
    others.sort(key=lambda placed: placed[0])
    return _distinct([*(port for _, port in others), *returned])


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


def _size_of(region: Region, node: fx.Node) -> tuple[fx.Node, int] | None:
    """The argument and axis whose extent a symbolic number is, if it is one."""
    number = node.meta.get("val")
    if not isinstance(number, torch.SymInt):
        return None
    for _, source in region.inputs:
        for axis, extent in enumerate(source.meta["val"].shape):
            if isinstance(extent, torch.SymInt) and extent.node.expr == number.node.expr:
                return source, axis
    return None


def _value(inner: Scope, node: fx.Node) -> Value:
    value = inner.value(node)
    if isinstance(value, Value):
        return value
    return Build.current().number(value, types.scalar_dtype(value))


class _Text:
    """A region spelled so that two calls that can share a graph read the same, in every run."""

    def __init__(self, crossing: _Crossing, scope: Scope) -> None:
        self.constants: list[Any] = []  # their contents are compared, but not part of the name
        self._names: dict[fx.Node, str] = {}
        self._symbols: dict[str, str] = {}
        self._ports = [(p.name, p.node) for p in (*crossing.inputs, *crossing.results)]
        for place, port in enumerate(crossing.inputs):
            self._names.setdefault(port.node, f"%{place}")
        for node, (source, axis) in crossing.sizes.items():
            self._names[node] = f"size({self._names[source]}, {axis})"
        for node in crossing.constants:
            name = scope.names.get(node, node.name)
            self._names[node] = self._constant(scope.nodes[node], name)

    def digest(self, match: Match, nodes: Iterable[fx.Node], types: Sequence[str]) -> str:
        """A name for what the region computes."""
        lines = [match.path, str(match.composite), str(match.attrs), *types]
        for node in nodes:
            arguments = fx.node.map_arg((node.args, node.kwargs), lambda n: self._names[n])
            self._names[node] = f"%{len(self._names)}"
            promised = self._promised(node.meta.get("val"))
            lines.append(f"{target_name(node.target)} {arguments} {promised}")
        lines += [f"{name} {self._names[node]}" for name, node in self._ports]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _constant(self, held: Any, name: str) -> str:
        if isinstance(held, list | tuple):
            return str([self._constant(part, name) for part in held])
        if isinstance(held, torch.Tensor):
            self.constants.append(Build.current().constants.attribute(held, name))
            return f"constant {held.dtype} {list(held.shape)}"
        if isinstance(held, fx.GraphModule):
            parts = [*held.named_parameters(), *held.named_buffers()]
            inside = [self._constant(tensor, at) for at, tensor in parts]
            return f"{held.code} {inside}"
        return repr(held)

    def _promised(self, val: Any) -> str:
        """The types of a node's results, with symbols numbered as they come."""
        if isinstance(val, list | tuple):
            return str([self._promised(part) for part in val])
        if not isinstance(val, torch.Tensor):
            return type(val).__name__
        shape = _SYMBOL.sub(lambda found: self._symbol(found[0]), str(list(val.shape)))
        return f"{val.dtype} {shape}"

    def _symbol(self, name: str) -> str:
        return self._symbols.setdefault(name, f"n{len(self._symbols)}")
