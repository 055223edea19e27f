"""The tolerance table: how far a result may be from torch's.

A limit is relative to `|want|` plus the largest `|want|` of the tensor: terms that cancel leave a
small result with the rounding error of its large terms. `BASE` holds the limits of one op. Other
measurements replace single rows of it, each with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import torch
import torch.fx as fx

from ..ir.types import narrow


class Tolerance(NamedTuple):
    """A limit and the reason for it."""

    limit: float
    reason: str


Table: TypeAlias = Mapping[torch.dtype, Tolerance]
Limits: TypeAlias = Mapping[torch.dtype, float]

# One op, by the dtype of its result. Dtypes without a row (integers, booleans) must be equal.
BASE: Table = {
    torch.float32: Tolerance(1e-5, "one unit is 1.2e-7; sums run in another order"),
    torch.complex64: Tolerance(1e-5, "two float32 numbers"),
    torch.float16: Tolerance(1e-3, "11 significant bits: one unit is 0.1 %"),
    torch.bfloat16: Tolerance(1e-2, "8 significant bits: one unit is 0.8 %"),
    torch.float8_e4m3fn: Tolerance(1e-1, "4 significant bits: one unit is 12.5 %"),
    torch.float8_e5m2: Tolerance(2e-1, "3 significant bits: one unit is 25 %"),
}

METAL_KERNEL: Table = {
    torch.bfloat16: Tolerance(1.6e-2, "two units: kernel and reference each round once"),
}

# One step of a decoder with its cache in buffers, relative to the largest logit.
_OTHER_KERNEL = Tolerance(
    5e-2,
    "attention over the full cache is another torch kernel than attention over a few positions, "
    "and rounds at other places in every layer",
)
DECODER_STEP: Table = {
    torch.float64: Tolerance(1e-8, "sums run in another order"),
    torch.float32: Tolerance(1e-4, "sums run in another order in every layer"),
    torch.float16: _OTHER_KERNEL,
    torch.bfloat16: _OTHER_KERNEL,
}


# Two runs of the same program on the same tokens, in steps of other lengths.
_OTHER_ORDER = "sums run in another order in every layer, and errors grow from token to token"
SAME_TOKENS: Table = {
    torch.float32: Tolerance(2e-3, _OTHER_ORDER),
    torch.float16: Tolerance(2e-2, _OTHER_ORDER),
    torch.bfloat16: Tolerance(5e-2, _OTHER_ORDER),
}


# What needs no error analysis to be right, relative to the values around an element.
STRICT: Table = {
    torch.float32: Tolerance(1e-6, "8 units"),
    torch.complex64: Tolerance(1e-6, "two float32 numbers"),
    torch.float16: Tolerance(1e-3, "one unit"),
    torch.bfloat16: Tolerance(8e-3, "one unit"),
}


def limits(overrides: Table | None = None) -> dict[torch.dtype, float]:
    """Return the limit of each dtype; `overrides` replace rows of the base table."""
    return {dtype: row.limit for dtype, row in {**BASE, **(overrides or {})}.items()}


def graph_limits(graph: fx.Graph) -> dict[torch.dtype, float]:
    """Return the limits for the outputs of a graph, by dtype.

    Rounding errors add up like the steps of a random walk, so the limit of one op grows with the
    square root of the longest chain of ops. An output is as precise as the narrowest dtype in the
    graph.
    """
    base = limits()
    depth: dict[fx.Node, int] = {}
    coarsest = 0.0
    for node in graph.nodes:
        before = max((depth[n] for n in node.all_input_nodes), default=0)
        depth[node] = before + (node.op == "call_function")
        if node.op == "call_function":
            coarsest = max([coarsest, *(base.get(d, 0.0) for d in _dtypes(node))])
    growth = math.sqrt(max([1, *depth.values()]))
    return {dtype: max(limit, coarsest) * growth for dtype, limit in base.items()}


def _dtypes(node: fx.Node) -> list[torch.dtype]:
    val = node.meta.get("val")
    parts = val if isinstance(val, list | tuple) else [val]
    return [narrow(p.dtype) for p in parts if isinstance(p, torch.Tensor)]
