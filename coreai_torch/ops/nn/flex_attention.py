"""Lower `flex_attention`: attention whose scores and mask are functions of the positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ...fx.tracing import trace
from ...ir.dialect import Value
from ...lowering import Ctx, lowers_function
from ...lowering.registry import builtin_decompositions

_INFINITY = float("inf")


@lowers_function(torch.ops.higher_order.flex_attention)
def flex_attention(ctx: Ctx, *args: Any, **kwargs: Any) -> list[Value]:
    """Trace the attention with its two functions in the place of the call."""
    count = len(ctx.outs)  # old versions of torch return no greatest scores
    graph, inputs = trace(lambda *a, **k: _attention(*a, **k)[:count], ctx.call.node, _table())
    return ctx.lower_subgraph(graph, ctx.call.scope.resolve(inputs))


def _table() -> dict[Any, Callable[..., Any]]:
    return dict(builtin_decompositions())


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: Any = None,
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attention, and logsumexp and maximum of its scores as powers of two.

    `block_mask` ends with the function of the mask. Its tables of blocks say which blocks a kernel
    may skip; the function decides about each position.
    """
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    key, value = (_for_each_query(x, query) for x in (key, value))
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    places = [torch.arange(n, device=query.device) for n in scores.shape]
    changed = _for_places(score_mod, range(4), 1, len(score_mod_other_buffers))
    scores = torch.where(
        _mask(block_mask[-1], places, mask_mod_other_buffers),
        changed(scores, *places, *score_mod_other_buffers).to(wide),
        -_INFINITY,
    )
    greatest = scores.amax(-1)
    sees_nothing = (greatest == -_INFINITY).unsqueeze(-1)
    weights = torch.where(sees_nothing, 0.0, scores.softmax(-1))
    attended = weights.to(query.dtype) @ value.to(query.dtype)
    return attended, scores.logsumexp(-1) / math.log(2), greatest / math.log(2)


def _for_each_query(x: Tensor, query: Tensor) -> Tensor:
    """Repeat keys or values for the heads and batches of queries that share them."""
    shared = query.shape[1] // x.shape[1]
    if shared > 1:
        x = x.unsqueeze(2).expand(-1, -1, shared, -1, -1).flatten(1, 2)
    return x.expand(query.shape[0], -1, -1, -1)


def _mask(function: fx.GraphModule, places: Sequence[Tensor], buffers: Sequence[Any]) -> Tensor:
    """Return the mask; axes that the function does not read have one element.

    A causal mask of 32 heads and 4,096 positions would be a constant of 512 MB.
    """
    given = [n for n in function.graph.nodes if n.op == "placeholder"][:4]
    read = [axis for axis, node in enumerate(given) if node.users]
    one_or_all = [p if axis in read else p[0] for axis, p in enumerate(places)]
    mask = _for_places(function, read, 0, len(buffers))(*one_or_all, *buffers)
    return mask.reshape([p.shape[0] if a in read else 1 for a, p in enumerate(places)])


def _for_places(
    function: Callable[..., Tensor], axes: Sequence[int], scores: int, buffers: int
) -> Any:
    """Return a function of one (score and) batch, head, query and key for all along some axes."""
    for axis in reversed(axes):
        places = tuple(0 if axis == other else None for other in range(4))
        function = torch.vmap(function, in_dims=(0,) * scores + places + (None,) * buffers)
    return function
