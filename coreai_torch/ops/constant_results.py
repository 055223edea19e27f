"""Results of a branch that depend on nothing that is passed to it."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

_UNKNOWN = object()


def constant_results(branch: fx.GraphModule) -> dict[int, Any]:
    """The results, by their place, that are the same at every run."""
    known: dict[fx.Node, Any] = {}
    for node in branch.graph.nodes:
        known[node] = _evaluated(branch, node, known)
    returned = node.args[0]  # the output is the last node of every FX graph
    listed = returned if isinstance(returned, list | tuple) else [returned]
    held = [known.get(r, _UNKNOWN) if isinstance(r, fx.Node) else r for r in listed]
    return {i: h for i, h in enumerate(held) if h is not _UNKNOWN}


def _evaluated(branch: fx.GraphModule, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    if node.op == "get_attr":
        held = operator.attrgetter(node.target)(branch)
        return held if isinstance(held, torch.Tensor) else _UNKNOWN
    foldable = node.op == "call_function" and not isinstance(
        node.target, torch._ops.HigherOrderOperator
    )
    if not foldable or any(known[n] is _UNKNOWN for n in node.all_input_nodes):
        return _UNKNOWN
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: known[n])
    return node.target(*args, **kwargs)
