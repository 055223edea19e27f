"""Attention of one query as sums over the keys, which are then not transposed."""

from __future__ import annotations

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, lowers
from ...ops.nn.attention import attention, products
from ...torch_compat import aten


def _sums(query: Value, key: Value) -> Value:
    if cai.size(query, 2) != 1:
        return products(query, key)
    return cai.transpose(cai.reduce_sum(cai.mul(key, query), [3]), [0, 1, 3, 2])


@lowers(
    aten.scaled_dot_product_attention.default,
    target="linux",
    ignore=("enable_gqa",),
    reason="one query of 2,048 keys takes 6.7 ms with products, which transpose the keys, sums 0.6",
)
def scaled_dot_product_attention(
    ctx: Ctx,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    is_causal: bool,
    scale: float | None,
) -> Value:
    return attention(ctx, query, key, value, attn_mask, is_causal, scale, _sums)
