"""Lowerings of the form `(values_map, node, loc)`, and functions that read their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..ir import types
from ..ir.build import Build
from ..ir.dialect import Value
from ..ir.locations import here
from .binding import Call
from .cases import Case
from .entry import LowerSubgraph
from .scope import ValuesMap


@dataclass(frozen=True)
class LegacyLowering:
    """A user's function that reads the node itself; the target is the name of the op."""

    target: str
    fn: Callable[..., Any]
    origin: str = "registered"
    cases: Sequence[Case] = ()

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Any:
        """Call the function with the values so far, the node and the location."""
        return self.fn(ValuesMap(call.scope, lower_subgraph), call.node, here())


def get_operand(values_map: Mapping[str, Value], node: fx.Node, i: int, loc: Any = None) -> Any:
    """Return the i-th argument of a node as a value; a list gives a list of values."""
    if not -len(node.args) <= i < len(node.args):
        raise ValueError(
            f"%{node.name} = {node.target} has {len(node.args)} positional arguments, "
            f"none at {i}; keyword arguments are in node.kwargs: {sorted(node.kwargs)}"
        )
    return _operand(values_map, node.args[i])


def get_operands(
    values_map: Mapping[str, Value], node: fx.Node, indices: Sequence[int], loc: Any = None
) -> list[Any]:
    """Return several arguments of a node as values, in the given order."""
    return [get_operand(values_map, node, i, loc) for i in indices]


def _operand(values_map: Mapping[str, Value], given: Any) -> Any:
    if isinstance(given, fx.Node):
        value = values_map[given.name]
        return _operand(values_map, value)
    if isinstance(given, bool | int | float | complex):
        return Build.current().number(given, types.scalar_dtype(given))
    if isinstance(given, list | tuple) and given and all(isinstance(g, int) for g in given):
        return Build.current().number(list(given), torch.int32)
    if isinstance(given, list | tuple):
        return [_operand(values_map, g) for g in given]
    return given
