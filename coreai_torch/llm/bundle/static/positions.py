"""Values that depend on the positions only, such as rotary embeddings, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from ....errors import ConversionError
from .capturing import TOKENS, Captured
from .layout import Placed, from_positions

TRY = "\n  try   pass target='gpu'"


class Tables:
    """A table `[width, context]` for each value that the decoder computes from positions."""

    def __init__(self, captured: Captured, context: int) -> None:
        self.tables: list[Tensor] = []
        self.rank: dict[fx.Node, int] = {}
        self.index: dict[fx.Node, int] = {}
        position = captured.inputs[1]
        self.nodes = _dependents(captured, position)
        wanted = [
            node
            for node in self.nodes
            if any(user not in self.nodes and user.op != "output" for user in node.users)
            and node is not position
        ]
        for node, table in zip(wanted, self._compute(captured, wanted, context), strict=True):
            self.rank[node] = node.meta["val"].dim()
            self.index[node] = self._add(table)

    def _add(self, table: Tensor) -> int:
        """Return the place of a table; equal ones are stored once."""
        for place, known in enumerate(self.tables):
            if known.shape == table.shape and torch.equal(known, table):
                return place
        self.tables.append(table)
        return len(self.tables) - 1

    def _compute(self, captured: Captured, wanted: list[fx.Node], context: int) -> list[Tensor]:
        """Evaluate the nodes at all positions, as many at a time as were captured."""
        rows: list[list[Tensor]] = [[] for _ in wanted]
        for start in range(0, context, TOKENS):
            feed = torch.arange(start, start + TOKENS).clamp(max=context - 1)[None]
            values = _evaluate(captured, self.nodes, feed)
            for node, found in zip(wanted, rows, strict=True):
                found.append(_columns(node, values[node]))
        return [torch.cat(found, 1)[:, :context].contiguous() for found in rows]

    def read(self, positions: Tensor, tables: list[Tensor]) -> Mapping[fx.Node, Placed]:
        """Return the values at `[tokens]` positions."""
        rows = [table.index_select(1, positions) for table in tables]
        return {
            node: from_positions(rows[self.index[node]], rank) for node, rank in self.rank.items()
        }


def _dependents(captured: Captured, position: fx.Node) -> dict[fx.Node, None]:
    """Return the nodes that depend on the positions and no other input."""
    found = {position: None}
    for node in captured.program.graph.nodes:
        inputs = [one for one in node.all_input_nodes if one.name not in captured.constants]
        if node.op == "call_function" and inputs and _derive(inputs, found, captured):
            found[node] = None
    return found


def _derive(inputs: list[fx.Node], found: dict[fx.Node, None], captured: Captured) -> bool:
    """Return whether all inputs are positions or constants, and one of them a position."""
    others = [one for one in inputs if one not in found]
    return len(others) < len(inputs) and all(is_constant(one, captured) for one in others)


def is_constant(node: fx.Node, captured: Captured) -> bool:
    """Return whether a node depends on no input."""
    if node.op == "placeholder":
        return node.name in captured.constants
    return all(is_constant(one, captured) for one in node.all_input_nodes)


def _evaluate(
    captured: Captured, nodes: Mapping[fx.Node, None], positions: Tensor
) -> dict[fx.Node, Any]:
    values: dict[fx.Node, Any] = {captured.inputs[1]: positions}

    def value(node: fx.Node) -> Any:
        if node not in values:
            if node.op == "placeholder":
                values[node] = captured.constants[node.name]
            else:
                args, kwargs = (fx.map_arg(one, value) for one in (node.args, node.kwargs))
                values[node] = node.target(*args, **kwargs)
        return values[node]

    for node in nodes:
        value(node)
    return values


def _columns(node: fx.Node, value: Any) -> Tensor:
    """Return `[width, tokens]` of `[1, tokens, width]` or `[1, 1, tokens, width]`."""
    shape = tuple(value.shape)
    if shape[:-1] not in ((1, TOKENS), (1, 1, TOKENS)):
        raise ConversionError(
            f"a value of shape {list(shape)} depends on the positions ({node.target}); a static "
            f"bundle needs one row for each position{TRY}"
        )
    rows: Tensor = value.reshape(TOKENS, shape[-1]).t()
    return rows
