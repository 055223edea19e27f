"""Results of a branch that depend on nothing that is known only at run time."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ...ir.dialect import Value
from ...passes.fold_constants import UNFOLDED, fold


def constant_results(branch: fx.GraphModule, operands: Sequence[Any]) -> dict[int, Any]:
    """The results, by their place, that are the same at every run."""
    known: dict[fx.Node, Any] = {}
    feed = iter(operands)
    for node in branch.graph.nodes:
        held = next(feed) if node.op == "placeholder" else _evaluated(branch, node, known)
        known[node] = UNFOLDED if isinstance(held, Value) else held
    returned = node.args[0]  # the output is the last node of every FX graph
    listed = returned if isinstance(returned, list | tuple) else [returned]
    held = [known[r] if isinstance(r, fx.Node) else r for r in listed]
    return {i: h for i, h in enumerate(held) if h is not UNFOLDED}


def _evaluated(branch: fx.GraphModule, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    if node.op == "get_attr":
        held = operator.attrgetter(node.target)(branch)
        return held if isinstance(held, torch.Tensor) else UNFOLDED
    if node.op != "call_function" or any(known[n] is UNFOLDED for n in node.all_input_nodes):
        return UNFOLDED
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: known[n])
    return fold(node, args, kwargs)
