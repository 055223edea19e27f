"""Marks in a captured graph at the border of the calls of externalized modules.

`coreai_torch::boundary(tensors, "3 in x mask")` begins a call of module 3 and names its arguments,
"3 out ..." ends it, "own" and "left" name buffers before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx


def _nothing(tensors: Sequence[torch.Tensor], tag: str) -> None:
    """Name tensors without changing them."""


_LIBRARY = torch.library.Library("coreai_torch", "FRAGMENT")
_LIBRARY.define("boundary(Tensor[] tensors, str tag) -> ()")
_LIBRARY.impl("boundary", _nothing, "CompositeExplicitAutograd")
torch.library.register_fake("coreai_torch::boundary", _nothing, lib=_LIBRARY)
boundary = torch.ops.coreai_torch.boundary.default
torch.fx.node.has_side_effect(boundary)  # nothing reads a mark, and export drops unread nodes


def is_mark(node: fx.Node) -> bool:
    """Return whether a node only names tensors at the border of a call."""
    return node.op == "call_function" and node.target is boundary


def read(mark: fx.Node) -> tuple[int, str, list[str]]:
    """Return the number of the module, the side of the call, and the names of the tensors."""
    number, side, *names = str(mark.args[1]).split(" ")
    return int(number), side, names
