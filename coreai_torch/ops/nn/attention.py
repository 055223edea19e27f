"""Scaled dot-product attention, kept whole as one composite.

The composite's contract is that of `composite_ops.SDPA`: `[batch, heads, length, width]`, query
heads a multiple of key heads, a causal mask that ends at the last key. What torch allows beyond
that is brought to this form outside of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.composite import Composite
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, case, lowers
from ...lowering.cases import b1, bf16, f16, f32
from ...torch_compat import aten

_INF = float("inf")


def _wide(x: Value) -> Value:
    return cai.cast(x, torch.float32)


def _positions(length: Dim) -> Value:
    stop = cai.i32(length) if isinstance(length, int) else length
    return cai.range_(cai.i32(0), stop, cai.i32(1))


def _visible(queries: Dim, keys: Dim) -> Value:
    """`[queries, keys]`: true where a key does not come after the query, both counted from 0."""
    later = cai.greater(
        cai.expand_dims(_positions(keys), [0]), cai.expand_dims(_positions(queries), [1])
    )
    return cai.logical_not(later)


def _scaled(query: Value, scale: float | None) -> Value:
    if scale is not None:
        return cai.mul(query, cai.like(query, scale))
    width = cai.size(query, 3)
    if isinstance(width, int):
        return cai.mul(query, cai.like(query, width**-0.5))
    return cai.div(query, cai.sqrt(cai.raw_cast(shapes.number(width), torch.float32)))


def _attend(
    query: Value, key: Value, value: Value, mask: Value | None, scale: float | None, causal: bool
) -> Value:
    """In float32 throughout; a query that sees no key gets zeros, as in torch."""
    batch, heads, queries, width = cai.sizes(query)
    kv_heads, keys = cai.size(key, 1), cai.size(key, 2)
    # Query heads that share a key head are more rows of one product: no key is ever copied.
    rows = queries if heads == kv_heads else shapes.mul(_share(heads, kv_heads), queries)
    scaled = cai.reshape(_scaled(_wide(query), scale), [batch, kv_heads, rows, width])
    logits = cai.matmul(scaled, cai.transpose(_wide(key), [0, 1, 3, 2]))
    logits = _masked(cai.reshape(logits, [batch, heads, queries, keys]), mask, causal)
    weights = cai.softmax(logits, 3)
    if mask is not None:
        blind = cai.equal(cai.reduce_max(logits, [3]), cai.like(logits, -_INF))
        weights = cai.where(blind, cai.like(weights, 0.0), weights)
    result = cai.matmul(cai.reshape(weights, [batch, kv_heads, rows, keys]), _wide(value))
    shaped = cai.reshape(result, [batch, heads, queries, cai.size(value, 3)])
    return cai.cast(shaped, cai.dtype(query))


def _masked(logits: Value, mask: Value | None, causal: bool) -> Value:
    unseen = cai.like(logits, -_INF)
    if mask is not None and cai.is_bool(mask):
        logits = cai.where(mask, logits, unseen)
    elif mask is not None:
        logits = cai.add(logits, _wide(mask))
    if not causal:
        return logits
    return cai.where(_visible(cai.size(logits, 2), cai.size(logits, 3)), logits, unseen)


def _share(heads: Dim, kv_heads: Dim) -> Dim:
    """How many query heads read one key head."""
    return shapes.floordiv(heads, kv_heads)


def _common(sizes: Sequence[Dim]) -> Dim:
    """The size that these broadcast to; sizes that are not known are taken for equal."""
    larger = [s for s in sizes if s != 1]
    return min(larger, key=lambda s: not isinstance(s, int)) if larger else 1


def _stacked(x: Value, lead: Sequence[Dim]) -> Value:
    """`x` with its leading axes, all but the heads, broadcast to `lead` and made one."""
    own = cai.sizes(x)
    if any(have != want for have, want in zip(own, lead, strict=False) if have == 1):
        x = cai.broadcast_to(x, [*lead, *own[len(lead) :]])
    if len(lead) == 1:
        return x
    return cai.reshape(x, [shapes.product(lead), *own[len(lead) :]])


def _with_heads(x: Value, heads: Dim) -> Value:
    """Every head repeated until there are this many."""
    batch, own, length, width = cai.sizes(x)
    if own == heads or not isinstance(own, int):
        return x
    copies = _share(heads, own)
    spread = cai.broadcast_to(cai.expand_dims(x, [2]), [batch, own, copies, length, width])
    return cai.reshape(spread, [batch, heads, length, width])


def _in_contract(
    query: Value, key: Value, value: Value, mask: Value | None
) -> tuple[list[Value], Value | None, list[Dim]]:
    """Four axes, equal batches, as many value heads as key heads; and the batch as it was."""
    rank = max(4, *(x.type.rank for x in (query, key, value)))
    full = [cai.expand_dims(x, range(rank - x.type.rank)) for x in (query, key, value)]
    every = [cai.sizes(x) for x in full]
    lead = [_common(sizes) for sizes in zip(*(s[: rank - 3] for s in every), strict=True)]
    query, key, value = (_stacked(x, lead) for x in full)
    if mask is not None and rank > 4:
        mask = _stacked(cai.expand_dims(mask, range(rank - mask.type.rank)), lead)
    kv_heads = _common([cai.size(key, 1), cai.size(value, 1)])
    heads = _common([cai.size(query, 1), kv_heads])
    operands = [_with_heads(query, heads), _with_heads(key, kv_heads), _with_heads(value, kv_heads)]
    return operands, mask, lead


def _hides_nothing(mask: torch.Tensor | None) -> bool:
    """Whether a mask is known to let every query see every key; encoders are given such masks."""
    if mask is None:
        return False
    # A mask is most often one row that was expanded: 12 looks at 197 x 197 of one take 40 ms.
    distinct = mask[tuple(slice(None) if step else slice(1) for step in mask.stride())]
    return bool(distinct.all()) if mask.dtype == torch.bool else not distinct.any()


def _unseen_by_position(query: Value, key: Value, mask: Value | None) -> Value:
    """Torch's causal mask, which starts at the first key, joined with the one that is given."""
    visible = _visible(cai.size(query, query.type.rank - 2), cai.size(key, key.type.rank - 2))
    if mask is None:
        return visible
    if cai.is_bool(mask):
        return cai.logical_and(mask, visible)
    return cai.where(visible, mask, cai.like(mask, -_INF))


_QKV = (f32(2, 2, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4))
_SELF = (f32(2, 2, 4, 8), f32(2, 2, 4, 8), f32(2, 2, 4, 8))
_SEEN = (True, True, False, True, False, True, True)
_BLIND = (True, False, True, False, True, *[False] * 5, True, True, True, True, False)
_PENALTY = (0.0, -1.5, -_INF, 2.0, 0.5, -_INF, 1.0)


@lowers(
    aten.scaled_dot_product_attention.default,
    cases=[
        case(*_QKV),
        case(f32(2, 3, 4), f32(2, 5, 4), f32(2, 5, 6)),
        case(f32(3, 4), f32(5, 4), f32(5, 4)),
        case(f32(2, 1, 2, 3, 4), f32(2, 3, 2, 5, 4), f32(2, 3, 2, 5, 4), b1(2, 3, 1, 3, 5)),
        case(*_QKV, b1(3, 5, values=_SEEN)),
        case(*_QKV, b1(3, 5, values=_BLIND)),
        case(*_QKV, f32(2, 1, 3, 5, values=_PENALTY)),
        case(*_QKV, f32(1, 1, 3, 5, values=(-_INF,) * 5 + (0.0,) * 10)),
        case(*_QKV, f32(3, 1, fixed=True)),
        case(*_QKV, b1(3, 5, values=(True,), constant=True)),
        case(*_QKV, f32(1, 5, values=(0.0,), constant=True)),
        case(*_SELF, None, 0.0, True),
        case(*_QKV, None, 0.0, True),
        case(f32(2, 2, 5, 4), f32(2, 2, 3, 4), f32(2, 2, 3, 4), is_causal=True),
        case(*_SELF, b1(4, 4, values=_SEEN), 0.0, True),
        case(*_QKV, b1(3, 5, values=_SEEN), is_causal=True),
        case(*_QKV, f32(3, 5), is_causal=True),
        case(*_QKV, scale=0.25),
        case(*_QKV, None, 0.0, False, scale=-1.5),
        case(
            f32(2, 4, 3, 8, fixed=True),
            f32(2, 2, 5, 8, fixed=True),
            f32(2, 2, 5, 8, fixed=True),
            enable_gqa=True,
        ),
        case(f32(4, 3, 8), f32(2, 5, 8), f32(2, 5, 8), enable_gqa=True, is_causal=True),
        case(f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 1, 5, 8), enable_gqa=True),
        case(f32(2, 2, 3, 4), f32(1, 2, 5, 4), f32(1, 1, 5, 4)),
        case(f16(2, 2, 3, 4), f16(2, 2, 5, 4), f16(2, 2, 5, 4)),
        case(f16(2, 2, 3, 4), f16(2, 2, 5, 4), f16(2, 2, 5, 4), f32(3, 5)),
        case(bf16(2, 2, 3, 4), bf16(2, 2, 5, 4), bf16(2, 2, 5, 4), bf16(3, 5)),
        case(f32(2, 2, 3, 4), f32(2, 2, 0, 4), f32(2, 2, 0, 4), static_only="no keys at all"),
    ],
)
def scaled_dot_product_attention(
    ctx: Ctx,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Value:
    lengths = [ctx.fake(name).shape[-2] for name in ("query", "key")]
    if statically_known_true(lengths[1] == 0):
        dims = [*cai.sizes(query)[:-1], cai.size(value, value.type.rank - 1)]
        return cai.zeros(query, ctx.dims(dims))
    if attn_mask is not None and _hides_nothing(ctx.known("attn_mask")):
        attn_mask = None
    if is_causal and not statically_known_true(lengths[0] == lengths[1]):
        attn_mask, is_causal = _unseen_by_position(query, key, attn_mask), False
    operands, mask, lead = _in_contract(query, key, value, attn_mask)
    width = operands[0].type.shape[-1]
    if scale is None and width > 0:
        scale = float(width**-0.5)

    def body(query: Value, key: Value, value: Value, attn_mask: Value | None = None) -> Value:
        return _attend(query, key, value, attn_mask, scale, is_causal)

    given = operands if mask is None else [*operands, mask]
    contract = Composite(
        "scaled_dot_product_attention",
        inputs=("query", "key", "value", "attn_mask")[: len(given)],
        attrs={"scale": scale, "is_causal": is_causal, "window_size": 0},
    )
    (output,) = ctx.emit(contract, body, *given)
    shaped = [*lead, *cai.sizes(output)[1:]]
    return cai.reshape(output, ctx.dims(shaped[len(shaped) - ctx.out.rank :]))
