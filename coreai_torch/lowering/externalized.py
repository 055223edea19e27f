"""Turns the region of an externalized module into a graph, and its place into an invoke."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import target_name
from ..externalize.cut import Region, tag
from ..ir import graph, types
from ..ir.build import Build
from ..ir.composite import declaration
from ..ir.dialect import Value, size
from .scope import Scope

LowerNodes = Callable[[Sequence[fx.Node], Scope, Sequence[Region]], None]


@dataclass(frozen=True)
class _Operand:
    """A value that crosses the boundary inwards: what it is called, where it is used."""

    name: str
    node: fx.Node
    value: Value


def emit(lower: LowerNodes, region: Region, nested: Sequence[Region], scope: Scope) -> None:
    """Invoke the region's graph here and hold its results in the scope around it."""
    build = Build.current()
    operands = _operands(region, scope)
    # The compiler wants states to leave in the order in which they come: captured, then given.
    results = [*region.escaping(), *region.outputs]
    outputs = [n.name for n in region.escaping()] + [tag(n).name for n in region.outputs]
    identity = _identity(region, operands)
    key = (identity, _baked_in(region, operands, scope))
    if key not in build.shared_graphs:

        def body(arguments: Sequence[Value]) -> list[Value]:
            inner = _inner_scope(region, operands, arguments, scope)
            lower(region.body, inner, nested)
            return [_result(inner, node) for node in results]

        build.shared_graphs[key] = graph.helper(
            f"{_title(region)}_{identity[:8]}",
            [graph.Port(o.name, o.value.type) for o in operands],
            body,
            outputs,
            private=region.match.composite is not None,
            no_inline=True,
            composite_decl=_declaration(region, operands, outputs),
        )
    values = build.shared_graphs[key](*(o.value for o in operands))
    for node, value in zip(results, values, strict=True):
        scope.hold(node, value)


def _title(region: Region) -> str:
    return ".".join(filter(None, (region.match.path, region.match.composite))) or "externalized"


def _declaration(region: Region, operands: Sequence[_Operand], outputs: Sequence[str]) -> Any:
    if region.match.composite is None:
        return None
    names = [o.name for o in operands]
    return declaration(region.match.composite, names, outputs, dict(region.match.attrs))


def _operands(region: Region, scope: Scope) -> list[_Operand]:
    """Parameters and buffers first, then what else is captured, then forward's arguments."""
    owned, captured = [], []
    for node in region.operands():
        held = scope.nodes[node]
        if isinstance(held, torch.Tensor):
            if node.op == "placeholder" and region.match.composite is not None:
                owned.append(_Operand(_relative(region, scope, node), node, scope.value(node)))
        elif isinstance(held, Value) and _size_of(region, node) is None:
            captured.append(_Operand(node.name, node, held))
    given = [_Operand(tag(m).name, m, _outer(scope, m)) for m in region.inputs]
    return _distinct([*owned, *captured, *given])


def _outer(scope: Scope, mark: fx.Node) -> Value:
    """The value on the caller's side of a mark on the way in."""
    return scope.value(mark.args[0])


def _relative(region: Region, scope: Scope, node: fx.Node) -> str:
    name, path = str(scope.names.get(node, node.name)), region.match.path
    return name.removeprefix(f"{path}.") if name.startswith(f"{path}.") else name.split(".")[-1]


def _distinct(operands: Sequence[_Operand]) -> list[_Operand]:
    taken = {o.name for o in operands}
    seen: set[str] = set()
    distinct = []
    for operand in operands:
        name, count = operand.name, 0
        while name in seen or (name != operand.name and name in taken):
            count += 1
            name = f"{operand.name}_{count}"
        seen.add(name)
        distinct.append(_Operand(name, operand.node, operand.value))
    return distinct


def _size_of(region: Region, node: fx.Node) -> tuple[fx.Node, int] | None:
    """The argument and axis whose extent a symbolic number is, if it is one."""
    number = node.meta.get("val")
    if not isinstance(number, torch.SymInt):
        return None
    for mark in region.inputs:
        for axis, extent in enumerate(mark.meta["val"].shape):
            if isinstance(extent, torch.SymInt) and extent.node.expr == number.node.expr:
                return mark, axis
    return None


def _inner_scope(
    region: Region, operands: Sequence[_Operand], arguments: Sequence[Value], outer: Scope
) -> Scope:
    inner = Scope(outer.names)
    for operand, argument in zip(operands, arguments, strict=True):
        inner.hold(operand.node, argument)
    for node in region.operands():
        if node in inner.nodes:
            continue
        place = _size_of(region, node)
        if place is None:
            inner.hold(node, outer.nodes[node])  # a constant or a number
        else:
            mark, axis = place
            inner.hold(node, size(inner.nodes[mark], axis))
    return inner


def _result(inner: Scope, node: fx.Node) -> Value:
    source: Any = node.args[0] if node not in inner.nodes else node
    value = inner.value(source)
    if isinstance(value, Value):
        return value
    return Build.current().number(value, types.scalar_dtype(value))


def _baked_in(region: Region, operands: Sequence[_Operand], scope: Scope) -> str:
    """What the graph holds as constants: two models may have a module of the same path."""
    crossing = {o.node for o in operands}
    constants = Build.current().constants

    def spelled(held: Any, name: str) -> str:
        if isinstance(held, list | tuple):
            return str([spelled(part, name) for part in held])
        if isinstance(held, torch.Tensor):  # a resource is spelled by its name, unique to it
            return str(constants.attribute(held, name))
        return "" if isinstance(held, Value | fx.GraphModule) else repr(held)

    return "\n".join(
        spelled(scope.nodes[node], scope.names.get(node, node.name))
        for node in region.operands()
        if node not in crossing
    )


def _identity(region: Region, operands: Sequence[_Operand]) -> str:
    """Equal for calls that can share a graph, and the same in every run."""
    numbers: dict[fx.Node, int] = {o.node: i for i, o in enumerate(operands)}

    def spelled(node: fx.Node) -> str:
        return f"%{numbers[node]}" if node in numbers else f"@{node.name}"

    lines = [region.match.path, str(region.match.composite), str(region.match.attrs)]
    lines += [f"{o.name}: {o.value.type}" for o in operands]
    for node in (*region.body, *region.outputs):
        arguments = fx.node.map_arg((node.args, node.kwargs), spelled)
        numbers[node] = len(numbers)
        lines.append(f"{target_name(node.target)} {arguments}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
