"""Lower scaled_dot_product_attention to one composite.

The composite has the contract of `composite_ops.SDPA`: operands of shape `[batch, heads, length,
width]`, a number of query heads that is a multiple of the key heads, and a causal mask aligned with
the last key. Other forms that torch accepts are converted to this one outside of the composite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.composite import Composite
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, case, lowers
from ...lowering.cases import b1, bf16, f16, f32
from ...torch_compat import aten, sdpa_accepts_mask_and_causal

_INF = float("inf")
_LOWEST = torch.finfo(torch.float32).min


def _wide(x: Value) -> Value:
    return cai.cast(x, torch.float32)


def _range(start: Dim, stop: Dim) -> Value:
    first, last = (cai.i32(one) if isinstance(one, int) else one for one in (start, stop))
    return cai.range_(first, last, cai.i32(1))


@dataclass(frozen=True)
class _Causal:
    """A mask by positions: of the keys up to the query's, the last `window`, or all if it is 0."""

    window: int = 0
    is_aligned: bool = False  # the last query is at the last key; else the first at the first
    may_be_blind: bool = False  # whether there may be more queries than keys

    def visible(self, queries: Dim, keys: Dim) -> Value:
        """Return whether a query sees a key, `[queries, keys]`."""
        columns, rows = cai.expand_dims(_range(0, keys), [0]), self._rows(queries, keys)
        visible = cai.logical_not(cai.greater(columns, rows))
        if not self.window:
            return visible
        first = cai.sub(rows, cai.like(rows, self.window))
        return cai.logical_and(visible, cai.greater(columns, first))

    def has_keys(self, queries: Dim, keys: Dim) -> Value:
        """Return 1 for a query that sees a key, else 0, `[queries, 1]`."""
        rows = self._rows(queries, keys)
        return _wide(cai.logical_not(cai.greater(cai.like(rows, 0), rows)))

    def _rows(self, queries: Dim, keys: Dim) -> Value:
        limits = (shapes.sub(keys, queries), keys) if self.is_aligned else (0, queries)
        return cai.expand_dims(_range(*limits), [1])


def _scaled(query: Value, scale: float | None) -> Value:
    if scale is not None:
        return cai.mul(query, cai.like(query, scale))
    width = cai.size(query, 3)
    if isinstance(width, int):
        return cai.mul(query, cai.like(query, width**-0.5))
    return cai.div(query, cai.sqrt(cai.raw_cast(shapes.number(width), torch.float32)))


Logits: TypeAlias = Callable[[Value, Value], Value]  # of queries and keys


def products(query: Value, key: Value) -> Value:
    return cai.matmul(query, cai.transpose(key, [0, 1, 3, 2]))


def _attend(
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    sinks: Value | None,
    scale: float | None,
    causal: _Causal | None,
    logits_of: Logits,
) -> Value:
    """Attend in float32; a query whose keys are all masked returns zeros, as in torch."""
    shared = _SharedHeads.of(query, key)
    logits = shared.heads(logits_of(shared.rows(_scaled(_wide(query), scale)), _wide(key)))
    lengths = cai.size(logits, 2), cai.size(logits, 3)
    visible = None if causal is None else causal.visible(*lengths)
    weights = _weights(logits, mask, sinks, visible)
    result = shared.heads(cai.matmul(shared.rows(weights), _wide(value)))
    if causal is not None and causal.may_be_blind:
        result = cai.mul(result, causal.has_keys(*lengths))
    return cai.cast(result, cai.dtype(query))


@dataclass(frozen=True)
class _SharedHeads:
    """Query heads that share a key head become rows of one product, so keys are not copied.

    Tensors stay unchanged if each query head has its key head: for a dynamic length, `reshape`
    would emit two ops and the ops that compute the sizes.
    """

    sizes: tuple[Dim, ...]  # of the query
    kv_heads: Dim

    @classmethod
    def of(cls, query: Value, key: Value) -> _SharedHeads:
        return cls(cai.sizes(query), cai.size(key, 1))

    def rows(self, x: Value) -> Value:
        """Return `[batch, kv_heads, rows, width]`."""
        batch, heads, queries, _ = self.sizes
        if heads == self.kv_heads:
            return x
        rows = shapes.mul(_heads_per_group(heads, self.kv_heads), queries)
        return cai.reshape(x, [batch, self.kv_heads, rows, cai.size(x, 3)])

    def heads(self, x: Value) -> Value:
        """Return `[batch, heads, queries, width]`."""
        batch, heads, queries, _ = self.sizes
        if heads == self.kv_heads:
            return x
        return cai.reshape(x, [batch, heads, queries, cai.size(x, 3)])


def _weights(
    logits: Value, mask: Value | None, sinks: Value | None, visible: Value | None
) -> Value:
    if mask is not None and not cai.is_bool(mask):
        return _weights_with_penalty(logits, _wide(mask), sinks, visible)
    if mask is None:
        return _softmax(logits if visible is None else _hide(logits, visible), sinks)
    mask = mask if visible is None else cai.logical_and(mask, visible)
    # Weights of hidden keys are zero already, unless the query sees none.
    return cai.mul(_softmax(_hide(logits, mask), sinks), _wide(mask))


def _softmax(logits: Value, sinks: Value | None) -> Value:
    """Return the weights of the keys; a sink takes weight as one more key, but has no value."""
    if sinks is None:
        return cai.softmax(logits, 3)
    *lead, keys = cai.sizes(logits)
    column = cai.broadcast_to(cai.reshape(_wide(sinks), [1, -1, 1, 1]), [*lead, 1])
    return cai.slice_axis(cai.softmax(cai.concat(3, [logits, column]), 3), 3, 0, keys)


def _hide(logits: Value, visible: Value) -> Value:
    """Add the lowest number to the logits of hidden keys."""
    zero = cai.like(logits, 0.0)
    return cai.add(logits, cai.where(visible, zero, cai.like(logits, _LOWEST)))


def _weights_with_penalty(
    logits: Value, penalty: Value, sinks: Value | None, visible: Value | None
) -> Value:
    logits = cai.add(logits, penalty)
    if visible is not None:
        logits = cai.where(visible, logits, cai.like(logits, -_INF))
    weights = _softmax(logits, sinks)
    if sinks is not None:
        return weights
    all_masked = cai.equal(cai.reduce_max(logits, [3]), cai.like(logits, -_INF))
    return cai.where(all_masked, cai.like(weights, 0.0), weights)


def _heads_per_group(heads: Dim, kv_heads: Dim) -> Dim:
    """Return how many query heads share one key head."""
    return shapes.floordiv(heads, kv_heads)


def _common_size(sizes: Sequence[Dim]) -> Dim:
    """Return the size that these broadcast to; dynamic sizes are assumed to be equal."""
    larger = [s for s in sizes if s != 1]
    return min(larger, key=lambda s: not isinstance(s, int)) if larger else 1


def _flatten_lead(x: Value, lead: Sequence[Dim]) -> Value:
    """Broadcast the leading axes (all before the heads) to `lead` and flatten them into one."""
    own_sizes = cai.sizes(x)
    if any(size != target for size, target in zip(own_sizes, lead, strict=False) if size == 1):
        x = cai.broadcast_to(x, [*lead, *own_sizes[len(lead) :]])
    if len(lead) == 1:
        return x
    return cai.reshape(x, [shapes.product(lead), *own_sizes[len(lead) :]])


def _repeat_heads(x: Value, heads: Dim) -> Value:
    """Repeat each head until there are `heads`."""
    batch, own_heads, length, width = cai.sizes(x)
    if own_heads == heads or not isinstance(own_heads, int):
        return x
    copies = _heads_per_group(heads, own_heads)
    repeated = cai.broadcast_to(cai.expand_dims(x, [2]), [batch, own_heads, copies, length, width])
    return cai.reshape(repeated, [batch, heads, length, width])


def _to_contract(
    query: Value, key: Value, value: Value, mask: Value | None
) -> tuple[list[Value], Value | None, list[Dim]]:
    """Bring the operands to rank 4, equal batches, and as many value heads as key heads.

    Also return the batch sizes before flattening.
    """
    rank = max(4, *(x.type.rank for x in (query, key, value)))
    full = [cai.expand_dims(x, range(rank - x.type.rank)) for x in (query, key, value)]
    all_sizes = [cai.sizes(x) for x in full]
    lead = [_common_size(sizes) for sizes in zip(*(s[: rank - 3] for s in all_sizes), strict=True)]
    query, key, value = (_flatten_lead(x, lead) for x in full)
    if mask is not None and rank > 4:
        mask = _flatten_lead(cai.expand_dims(mask, range(rank - mask.type.rank)), lead)
    kv_heads = _common_size([cai.size(key, 1), cai.size(value, 1)])
    heads = _common_size([cai.size(query, 1), kv_heads])
    operands = [
        _repeat_heads(query, heads),
        _repeat_heads(key, kv_heads),
        _repeat_heads(value, kv_heads),
    ]
    return operands, mask, lead


def _hides_nothing(mask: torch.Tensor | None) -> bool:
    """Return whether a constant mask hides no key; encoders are often given such masks."""
    if mask is None:
        return False
    # A mask is mostly one expanded row: 12 checks of all elements of a 197 x 197 mask take 40 ms.
    distinct = mask[tuple(slice(None) if step else slice(1) for step in mask.stride())]
    return bool(distinct.all()) if mask.dtype == torch.bool else not distinct.any()


def _with_causal_mask(query: Value, key: Value, mask: Value | None) -> Value:
    """Return torch's causal mask, aligned with the first key, combined with the given mask."""
    lengths = cai.size(query, query.type.rank - 2), cai.size(key, key.type.rank - 2)
    visible = _Causal().visible(*lengths)
    if mask is None:
        return visible
    if cai.is_bool(mask):
        return cai.logical_and(mask, visible)
    return cai.where(visible, mask, cai.like(mask, -_INF))


_BOTH = "" if sdpa_accepts_mask_and_causal() else "torch 2.14 and later raise for both"
_QKV = (f32(2, 2, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4))
_SELF = (f32(2, 2, 4, 8), f32(2, 2, 4, 8), f32(2, 2, 4, 8))
_SEEN = (True, True, False, True, False, True, True)
_BLIND = (True, False, True, False, True, *[False] * 5, True, True, True, True, False)
_PENALTY = (0.0, -1.5, -_INF, 2.0, 0.5, -_INF, 1.0)


@lowers(
    aten.scaled_dot_product_attention.default,
    ignore=("enable_gqa",),  # heads are shared wherever their numbers differ
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
        case(*_SELF, b1(4, 4, values=_SEEN), 0.0, True, void=_BOTH),
        case(*_QKV, b1(3, 5, values=_SEEN), is_causal=True, void=_BOTH),
        case(*_QKV, f32(3, 5), is_causal=True, void=_BOTH),
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
        case(f32(2, 2, 3, 4), f32(2, 2, 0, 4), f32(2, 2, 0, 4), static_only="zero keys"),
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
) -> Value:
    return attention(ctx, query, key, value, attn_mask, is_causal, scale, products)


def attention(
    ctx: Ctx,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    is_causal: bool,
    scale: float | None,
    logits: Logits,
) -> Value:
    lengths = [ctx.fake(name).shape[-2] for name in ("query", "key")]
    if statically_known_true(lengths[1] == 0):
        dims = [*cai.sizes(query)[:-1], cai.size(value, value.type.rank - 1)]
        return cai.zeros(query, ctx.dims(dims))
    if attn_mask is not None and _hides_nothing(ctx.known("attn_mask")):
        attn_mask = None
    if is_causal and not statically_known_true(lengths[0] == lengths[1]):
        attn_mask, is_causal = _with_causal_mask(query, key, attn_mask), False
    operands, mask, lead = _to_contract(query, key, value, attn_mask)
    width = operands[0].type.shape[-1]
    if scale is None and width > 0:
        scale = float(width**-0.5)

    causal = _Causal() if is_causal else None

    def body(query: Value, key: Value, value: Value, attn_mask: Value | None = None) -> Value:
        return _attend(query, key, value, attn_mask, None, scale, causal, logits)

    given = operands if mask is None else [*operands, mask]
    contract = Composite(
        "scaled_dot_product_attention",
        inputs=("query", "key", "value", "attn_mask")[: len(given)],
        attrs={"scale": scale, "is_causal": is_causal, "window_size": 0},
    )
    (output,) = ctx.emit(contract, body, *given)
    if len(lead) == 1 and ctx.out.rank == 4:
        return output
    shaped = [*lead, *cai.sizes(output)[1:]]
    return cai.reshape(output, ctx.dims(shaped[len(shaped) - ctx.out.rank :]))


def recognized_attention(
    ctx: Ctx,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    sinks: Value | None,
    scale: float,
    is_causal: bool,
    window_size: int,
) -> Value:
    """Lower the op that pattern recognition creates; a causal mask ends with the last key."""
    causal = None
    if is_causal or window_size:
        queries, keys = (ctx.fake(name).shape[2] for name in ("query", "key"))
        may_be_blind = sinks is None and not statically_known_true(queries <= keys)
        causal = _Causal(window_size, is_aligned=True, may_be_blind=may_be_blind)
    given = {"attn_mask": attn_mask, "sinks": sinks}
    named = {name: value for name, value in given.items() if value is not None}

    def body(query: Value, key: Value, value: Value, *others: Value) -> Value:
        inner = dict(zip(named, others, strict=True))
        masks = inner.get("attn_mask"), inner.get("sinks")
        return _attend(query, key, value, *masks, scale, causal, products)

    contract = Composite(
        "scaled_dot_product_attention",
        inputs=("query", "key", "value", *named),
        attrs={"scale": scale, "is_causal": is_causal, "window_size": window_size},
    )
    (output,) = contract.emit(body, query, key, value, *named.values(), variant=str(causal))
    return output
