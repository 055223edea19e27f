"""Torch ops for the composites that recognition inserts into a graph.

Each op computes what the module of `composite_ops` computes, so that the rewritten graph still
runs in torch. `ops/recognized_composites.py` lowers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...composite_ops import RMSNormImpl, RoPE
from ...composite_ops._gather_mm import gather_mm as _gather_mm
from ...composite_ops.attention_module import check as _check
from ...composite_ops.attention_module import scaled_dot_product_attention as _sdpa

_LIBRARY = torch.library.Library("coreai_torch", "FRAGMENT")


def compute_rms_norm(input: Tensor, scale: Tensor, eps: float) -> Tensor:
    result: Tensor = RMSNormImpl(eps)(input, scale)
    return result


def compute_rope(
    input: Tensor, cos: Tensor, sin: Tensor, dims: int | None, interleaved: bool
) -> Tensor:
    result: Tensor = RoPE(dims=dims, interleaved=interleaved)(input, cos, sin)
    return result


def compute_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    sinks: Tensor | None,
    scale: float,
    is_causal: bool = False,
    window_size: int = 0,
) -> Tensor:
    return _sdpa(query, key, value, attn_mask, sinks, scale, is_causal, window_size)


def compute_gather_mm(
    lhs: Tensor, rhs: Tensor, lhs_indices: Tensor | None, rhs_indices: Tensor | None
) -> Tensor:
    return _gather_mm(lhs, rhs, lhs_indices, rhs_indices, 0)


def _repeat_heads(rows: Tensor, copies: int) -> Tensor:
    return rows.repeat_interleave(copies, 1)


def _repeated_shape(rows: Tensor, copies: int) -> Tensor:
    batch, heads, length, width = rows.shape
    return rows.new_empty((batch, heads * copies, length, width))


def _like_input(input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


def _attention_shape(query: Tensor, key: Tensor, value: Tensor, *masks: Any) -> Tensor:
    _check(query, key, value, *masks[:2])
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _rope_shape(
    input: Tensor, cos: Tensor, sin: Tensor, dims: int | None, interleaved: bool
) -> Tensor:
    module = RoPE(dims=dims, interleaved=interleaved)
    width = module._rotated_width(input.shape[-1])
    for name, table in (("cos", cos), ("sin", sin)):
        module._table(name, table, input, width)
    return torch.empty_like(input)


def _op(schema: str, function: Callable[..., Tensor], fake: Callable[..., Tensor]) -> Any:
    """Define a torch op; `fake` gives the result type faster than tracing the function."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"coreai_torch::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.coreai_torch, name).default


rms_norm = _op(
    "rms_norm(Tensor input, Tensor scale, float eps) -> Tensor", compute_rms_norm, _like_input
)
rope = _op(
    "rope(Tensor input, Tensor cos, Tensor sin, int? dims, bool interleaved) -> Tensor",
    compute_rope,
    _rope_shape,
)
attention = _op(
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, "
    "Tensor? sinks, float scale, bool is_causal=False, int window_size=0) -> Tensor",
    compute_attention,
    _attention_shape,
)
gather_mm = _op(
    "gather_mm(Tensor lhs, Tensor rhs, Tensor? lhs_indices, Tensor? rhs_indices) -> Tensor",
    compute_gather_mm,
    compute_gather_mm,
)
# Repeat each head of keys or values `[batch, heads, length, width]`. Models repeat them by a view
# of an expanded tensor; torch 2.12 and older compare its strides, and record that
# min(16 * length, 32 * length) is 16 * length as a bound on a dynamic length.
repeat_heads = _op(
    "repeat_heads(Tensor rows, int copies) -> Tensor", _repeat_heads, _repeated_shape
)
