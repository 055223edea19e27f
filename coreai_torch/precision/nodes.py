"""What an FX node is: the name of its op, its values, and whether it only moves them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

# Ops whose result has all elements of the operand, and no other.
MOVES = (
    *("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze"),
    *("clone", "alias", "_to_copy", "unflatten", "flip", "roll"),
)


def op_name(node: fx.Node) -> str:
    """Return `topk.default` for `aten.topk.default`; other targets by their own name."""
    return str(node.target).removeprefix("aten.")


def base(node: fx.Node) -> str:
    """Return `topk` for `aten.topk.default`; an empty string for other nodes than calls."""
    return op_name(node).partition(".")[0] if node.op == "call_function" else ""


def tensors(node: fx.Node) -> Iterator[torch.Tensor]:
    """Yield the fake tensors of a node."""
    found = node.meta.get("val")
    for value in found if isinstance(found, tuple | list) else (found,):
        if isinstance(value, torch.Tensor):
            yield value


def is_float(node: fx.Node) -> bool:
    """Return whether a node has a float result."""
    return any(value.is_floating_point() for value in tensors(node))
