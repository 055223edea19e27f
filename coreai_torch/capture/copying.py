"""Copy the graph of a captured program without its weights."""

from __future__ import annotations

import copy

from torch import fx


def copied_module(module: fx.GraphModule) -> fx.GraphModule:
    """Copy the graph and the graphs of its branches; weights are shared."""
    result = fx.GraphModule(module, copy.deepcopy(module.graph))
    result.meta = module.meta
    for copied, node in zip(result.graph.nodes, module.graph.nodes, strict=True):
        copied.name = node.name  # a placeholder `input` would be `input_1` now
    for name, inner in list(result.named_children()):
        if isinstance(inner, fx.GraphModule):
            setattr(result, name, copied_module(inner))
    return result
