"""Trace a function written in torch in the place of one node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

from ..errors import ConversionError, describe, target_name
from ..torch_compat import FakeTensor, FakeTensorMode, enable_python_dispatcher


def trace(
    fn: Callable[..., Any], node: fx.Node, decompositions: Mapping[Any, Callable[..., Any]]
) -> tuple[fx.GraphModule, list[fx.Node]]:
    """Return the function as a graph, and the nodes that are its arguments, in order.

    Raises ConversionError if tracing fixes a dynamic size.
    """
    graphs = {n: g for n in node.all_input_nodes if (g := _graph_of(n)) is not None}
    inputs = [n for n in node.all_input_nodes if n not in graphs]
    fakes = [n.meta["val"] for n in inputs]

    def call(*given: Any) -> Any:
        replaced = {**graphs, **dict(zip(inputs, given, strict=True))}
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: replaced[n])
        result = fn(*args, **kwargs)
        return list(result) if isinstance(result, list | tuple) else [result]

    tensors = [f for f in fakes if isinstance(f, FakeTensor)]
    mode = tensors[0].fake_mode if tensors else FakeTensorMode()
    before = _fixed_sizes(mode)
    # Without the Python dispatcher `torch.complex` reads plain sizes, which fixes dynamic ones.
    with mode, enable_python_dispatcher():
        traced = make_fx(call, decomposition_table=decompositions)(*fakes)
    if _fixed_sizes(mode) != before:
        problem = f"{target_name(node.target)} fixes dynamic sizes when it is decomposed"
        # This exported program keeps the fixed size.
        hint = "export again, then call .run_decompositions(coreai_torch.get_decomp_table())"
        raise ConversionError(describe(node, problem, hint))
    traced.graph.eliminate_dead_code()  # or results that nothing reads count as used
    for inner in traced.graph.nodes:  # for errors and locations
        inner.meta.setdefault("nn_module_stack", node.meta.get("nn_module_stack"))
        inner.meta.setdefault("stack_trace", node.meta.get("stack_trace"))
    return traced, inputs


def _graph_of(node: fx.Node) -> fx.GraphModule | None:
    """Return the graph that a node passes to a higher-order op, or None."""
    if node.op != "get_attr":
        return None
    value = operator.attrgetter(str(node.target))(node.graph.owning_module)
    return value if isinstance(value, fx.GraphModule) else None


def _fixed_sizes(mode: FakeTensorMode) -> dict[Any, Any]:
    """Return the symbols that became numbers; the program is correct for these sizes only."""
    replaced = mode.shape_env.replacements if mode.shape_env else {}
    return {symbol: size for symbol, size in replaced.items() if size.is_number}
