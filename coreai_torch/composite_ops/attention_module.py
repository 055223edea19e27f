"""Attention as a function, with grouped heads, masks, windows and sinks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import hugging_face
from ._shapes import FLOATS, bind_axes, is_size, require_dtype, require_expandable, require_multiple

_OP = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window_size: int = 0,
    _use_hf_impl: bool = False,
) -> Tensor:
    """Return the attention `[B, Nq, Tq, Dv]` in query's dtype; see `SDPA` for the arguments."""
    check(query, key, value, attn_mask, sinks)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    visible = _visible(query, key, is_causal, window_size)
    if _use_hf_impl:
        mask = _joined(attn_mask, visible, query.dtype)
        return hugging_face.attention(query, key, value, mask, sinks, scale)
    batch, n_heads, n_queries, width = query.shape
    n_kv_heads, n_keys = key.shape[1:3]
    # Query heads that share a key head become rows of one product, so keys are not repeated.
    rows = (batch * n_kv_heads, n_heads // n_kv_heads * n_queries)
    heads = (batch, n_heads, n_queries)
    logits = torch.bmm(_reshaped(query.float() * scale, *rows, width), key.float().flatten(0, 1).mT)
    logits = _masked(_reshaped(logits, *heads, n_keys), attn_mask, visible)
    all_see = attn_mask is None and (visible is None or statically_known_true(n_queries <= n_keys))
    weights = _reshaped(_softmax(logits, sinks, all_see), *rows, n_keys)
    out = torch.bmm(weights, value.float().flatten(0, 1))
    return _reshaped(out, *heads, value.shape[-1]).to(query.dtype)


def _reshaped(x: Tensor, *shape: int) -> Tensor:
    """Reshape through a flat tensor.

    Merging two of four axes directly makes torch.export guard on `min(Tkv, Tq * Tkv) == Tkv`,
    which it cannot prove for a dynamic Tq.
    """
    return x.flatten().unflatten(0, shape)


def check(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, sinks: Tensor | None
) -> None:
    """Raise unless dtypes and shapes are those of an attention."""
    require_dtype(_OP, FLOATS, query=query, key=key, value=value, sinks=sinks)
    require_dtype(_OP, (torch.bool, *FLOATS), attn_mask=attn_mask)
    sizes: dict[str, int] = {}
    bind_axes(_OP, "query", query, "B Nq Tq D", sizes)
    bind_axes(_OP, "key", key, "B Nkv Tkv D", sizes)
    bind_axes(_OP, "value", value, "B Nkv Tkv Dv", sizes)
    require_multiple(_OP, "Nq", "Nkv", sizes)
    if attn_mask is not None:
        logits = [sizes[axis] for axis in ("B", "Nq", "Tq", "Tkv")]
        require_expandable(_OP, "attn_mask", attn_mask.shape, logits)
    if sinks is not None:
        bind_axes(_OP, "sinks", sinks, "Nq", sizes)


def _visible(query: Tensor, key: Tensor, is_causal: bool, window_size: int) -> Tensor | None:
    """Return a mask `[Tq, Tkv]` of the keys that each query sees by position; None for all.

    The last query is at the position of the last key. A window ends at the query, so it is causal.
    """
    n_queries, n_keys = query.shape[-2], key.shape[-2]
    # A single query is at the last position: there are no later keys.
    causal = (is_causal or window_size > 0) and not is_size(n_queries, 1)
    if not causal and window_size == 0:
        return None
    at = torch.arange(n_queries, device=query.device).unsqueeze(1) + (n_keys - n_queries)
    keys = torch.arange(n_keys, device=query.device)
    if window_size == 0:
        return keys <= at
    recent = keys > at - window_size
    return recent & (keys <= at) if causal else recent


def _joined(attn_mask: Tensor | None, visible: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return one mask for both, boolean or added to the logits."""
    if attn_mask is None or visible is None:
        return visible if attn_mask is None else attn_mask
    if attn_mask.dtype == torch.bool:
        return attn_mask & visible
    return torch.where(visible, attn_mask, torch.finfo(dtype).min)


def _masked(logits: Tensor, attn_mask: Tensor | None, visible: Tensor | None) -> Tensor:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        visible = attn_mask if visible is None else attn_mask & visible
    elif attn_mask is not None:
        logits = logits + attn_mask
    return logits if visible is None else torch.where(visible, logits, -torch.inf)


def _softmax(logits: Tensor, sinks: Tensor | None, all_see: bool) -> Tensor:
    if sinks is not None:
        column = sinks.float().reshape(1, -1, 1, 1).expand(*logits.shape[:-1], 1)
        logits = torch.cat((logits, column), -1)
    weights = logits.softmax(-1)
    if not all_see:
        # A query without visible keys returns zeros, as in torch; softmax alone returns NaN.
        blind = logits.amax(-1, keepdim=True) == -torch.inf
        weights = weights.masked_fill(blind, 0.0)
    return weights if sinks is None else weights[..., :-1]
