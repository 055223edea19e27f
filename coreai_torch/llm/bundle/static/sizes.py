"""The same program for other numbers of tokens and slots, without another export.

The program is exported once with sizes that occur nowhere else. A copy for other sizes replaces
these numbers and computes all shapes again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from ....fx.programs import copied_module, with_graph
from ....torch_compat import FakeTensorMode, pytree
from .capturing import TOKENS

SLOTS = 1013  # slots of the example, another prime number


def resized(
    program: torch.export.ExportedProgram, tokens: int, slots: int
) -> torch.export.ExportedProgram:
    """Return the program for numbers of tokens and slots; the weights are shared."""
    sizes = {TOKENS: tokens, SLOTS: slots}

    def number(value: Any) -> Any:
        return sizes.get(value, value) if isinstance(value, int) else value

    module = copied_module(program.graph_module)
    with FakeTensorMode() as mode:
        for node in module.graph.nodes:
            if node.op == "placeholder":
                node.meta["val"] = _like(node.meta["val"], sizes, mode)
            elif node.op == "call_function":
                node.args, node.kwargs = pytree.tree_map(number, (node.args, node.kwargs))
                node.meta["val"] = _value(node)
        example = pytree.tree_map(lambda one: _like(one, sizes, mode), program.example_inputs)
    return with_graph(program, module, example_inputs=example)


def _like(value: Any, sizes: dict[int, int], mode: FakeTensorMode) -> Any:
    if not isinstance(value, Tensor):
        return value
    shape = [sizes.get(size, size) for size in value.shape]
    return torch.empty(shape, dtype=value.dtype)


def _value(node: fx.Node) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    return node.target(*args, **kwargs)
