"""Find states that a program adds to: in half precision their error grows with every call.

A float16 sum of ones stops at 2048, and an average with a rate of 0.001 stops far from its limit.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx
from torch.export.graph_signature import OutputKind

from .nodes import MOVES, base, is_float

_SUMS = ("add", "sub", "rsub", "lerp", "addcmul", "addcdiv")
_FACTORS = ("mul", "div", "neg")
# Between a product and the factor of a state, which is near 1: float16 has two numbers above 0.999.
_POINTWISE = (*_SUMS, *_FACTORS, *MOVES, "sigmoid", "exp", "tanh", "softplus", "pow", "clamp")
_STATES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def accumulators(program: torch.export.ExportedProgram) -> Iterator[fx.Node]:
    """Yield the nodes between a state and the sum that replaces it, and those of its factors."""
    nodes = {node.name: node for node in program.graph.nodes}
    signature = program.graph_signature
    placeholders = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    for spec in signature.output_specs:
        if spec.kind in _STATES and spec.arg.name in nodes:
            state = placeholders.get(spec.target, spec.target)
            path = _path(nodes[spec.arg.name], nodes.get(str(state)))
            if any(base(node) in _SUMS for node in path):
                yield from path
                for node in path:
                    if base(node) in _FACTORS:
                        yield from _pointwise(node)


def _path(node: fx.Node, state: fx.Node | None) -> list[fx.Node]:
    """Return the nodes from a new value to the old one, if all of them are sums and products."""
    reader: dict[fx.Node, fx.Node | None] = {node: None}  # the node that led to each visited one
    waiting = [node]
    while waiting and state is not None:
        visited = waiting.pop()
        if visited is state or base(visited) not in (*_SUMS, *_FACTORS, *MOVES):
            continue
        for operand in visited.all_input_nodes:
            if _selects(visited, operand):
                continue
            if operand is state:
                return _back(visited, reader)
            if operand not in reader:
                reader[operand] = visited
                waiting.append(operand)
    return []


def _back(node: fx.Node | None, reader: dict[fx.Node, fx.Node | None]) -> list[fx.Node]:
    found = []
    while node is not None:
        found.append(node)
        node = reader[node]
    return found


def _pointwise(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the pointwise ops that compute the operands of a node."""
    seen, open_ = set(), list(node.all_input_nodes)
    while open_:
        operand = open_.pop()
        if operand not in seen and base(operand) in _POINTWISE and is_float(operand):
            seen.add(operand)
            yield operand
            open_.extend(operand.all_input_nodes)


def _selects(node: fx.Node, value: fx.Node) -> bool:
    """Return whether a product with a mask selects elements, as `new * m + old * (1 - m)`."""
    others = [operand for operand in node.all_input_nodes if operand is not value]
    return base(node) == "mul" and any(map(_is_mask, others))


def _is_mask(node: fx.Node) -> bool:
    """Return whether a float was made from a bool or an integer."""
    while is_float(node) and base(node) in (*MOVES, "add", "sub", "rsub", "mul"):
        if len(node.all_input_nodes) != 1:
            return False
        node = node.all_input_nodes[0]
    return not is_float(node)
