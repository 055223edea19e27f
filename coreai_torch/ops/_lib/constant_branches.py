"""Find results of a control-flow branch that do not depend on run-time values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ...ir.dialect import Value
from ...passes.fold_constants import UNFOLDED, fold


def constant_results(branch: fx.GraphModule, operands: Sequence[Any]) -> dict[int, Any]:
    """Return the results of `branch` that are constant, by their index in the output."""
    known: dict[fx.Node, Any] = {}
    feed = iter(operands)
    for node in branch.graph.nodes:
        value = next(feed) if node.op == "placeholder" else _evaluate(branch, node, known)
        known[node] = UNFOLDED if isinstance(value, Value) else value
    returned = node.args[0]  # the output node is the last node of every FX graph
    listed = returned if isinstance(returned, list | tuple) else [returned]
    value = [known[r] if isinstance(r, fx.Node) else r for r in listed]
    return {i: v for i, v in enumerate(value) if v is not UNFOLDED}


def _evaluate(branch: fx.GraphModule, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    if node.op == "get_attr":
        value = operator.attrgetter(node.target)(branch)
        return value if isinstance(value, torch.Tensor) else UNFOLDED
    if node.op != "call_function" or any(known[n] is UNFOLDED for n in node.all_input_nodes):
        return UNFOLDED
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: known[n])
    return fold(node, args, kwargs)
