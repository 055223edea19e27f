"""Traces a function written in torch in the place of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx


def trace(fn: Callable[..., Any], node: fx.Node) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The function as a graph over the node's tensor (and symbolic) arguments, in order."""
    inputs: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), lambda n: inputs.append(n) or n)
    fakes = [n.meta["val"] for n in inputs]

    def call(*given: Any) -> Any:
        replaced = dict(zip(inputs, given, strict=True))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: replaced[n])
        result = fn(*args, **kwargs)
        return list(result) if isinstance(result, list | tuple) else [result]

    tensors = [f for f in fakes if isinstance(f, torch._subclasses.FakeTensor)]
    from ..capture.decompositions import table
    from .registry import BUILTIN

    mode = tensors[0].fake_mode if tensors else torch._subclasses.FakeTensorMode()
    with mode:
        traced = make_fx(call, decomposition_table=table(BUILTIN.whole(), BUILTIN.rewrites()))(
            *fakes
        )
    for inner in traced.graph.nodes:  # so that errors and locations name the user's place
        inner.meta.setdefault("nn_module_stack", node.meta.get("nn_module_stack"))
        inner.meta.setdefault("stack_trace", node.meta.get("stack_trace"))
    return traced, inputs
