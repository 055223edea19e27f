"""SDPA against torch, against GPT-OSS, and against a reference that loops over keys."""

import math
from types import SimpleNamespace

import pytest
import torch
from exported import FLOATS, NARROW, close, dims, exports, targets
from generated_examples import examples
from torch.nn.functional import scaled_dot_product_attention as torchs

from coreai_torch.composite_ops import SDPA
from coreai_torch.composite_ops._sdpa import scaled_dot_product_attention


def qkv(batch=2, heads=4, kv_heads=2, queries=5, keys=7, width=8, value_width=6):
    return (
        torch.randn(batch, heads, queries, width),
        torch.randn(batch, kv_heads, keys, width),
        torch.randn(batch, kv_heads, keys, value_width),
    )


def key_by_key(query, key, value, mask, sinks, scale, is_causal, window):
    """Compute attention in float64 with a loop over the visible keys of each query."""
    (batch, heads, queries, width), (_, kv_heads, keys, _) = query.shape, key.shape
    query, key, value = query.double(), key.double(), value.double()
    out = torch.zeros(batch, heads, queries, value.shape[-1], dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in (batch, heads, queries))):
        group, at = h // (heads // kv_heads), i + keys - queries
        weights = {}
        for j in range(keys):
            if ((is_causal or window) and j > at) or (window and j <= at - window):
                continue
            logit = (query[b, h, i] @ key[b, group, j]).item() * (scale or width**-0.5)
            seen = None if mask is None else mask.expand(batch, heads, queries, keys)[b, h, i, j]
            if seen is not None and mask.dtype != torch.bool:
                logit += seen.item()
            elif seen is not None and not seen:
                continue
            weights[j] = math.exp(logit)
        total = sum(weights.values()) + (0.0 if sinks is None else math.exp(sinks[h]))
        for j, weight in weights.items():
            out[b, h, i] += weight / (total or 1.0) * value[b, group, j]
    return out.float()


@examples(
    300,
    lambda st: {
        "kv_heads": st.integers(1, 2),
        "group": st.integers(1, 3),
        "queries": st.integers(1, 4),
        "keys": st.integers(1, 5),
        "mask": st.sampled_from([None, "bool", "additive", "-inf"]),
        "mask_axes": st.tuples(*[st.booleans()] * 4),
        "with_sinks": st.booleans(),
        "scale": st.sampled_from([None, 0.3]),
        "is_causal": st.booleans(),
        "window": st.integers(0, 4),
        "seed": st.integers(0, 1000),
    },
)
def test_all_options_compose(
    kv_heads, group, queries, keys, mask, mask_axes, with_sinks, scale, is_causal, window, seed
):
    torch.manual_seed(seed)
    heads = kv_heads * group
    args = qkv(2, heads, kv_heads, queries, keys)
    full = (2, heads, queries, keys)
    shape = [size if kept else 1 for size, kept in zip(full, mask_axes, strict=True)]
    attn_mask = {
        None: None,
        "bool": torch.rand(shape) < 0.6,
        "additive": torch.randn(shape),
        "-inf": torch.zeros(shape).masked_fill(torch.rand(shape) < 0.4, -torch.inf),
    }[mask]
    sinks = torch.randn(heads) if with_sinks else None
    out = SDPA(scale, is_causal, window)(*args, attn_mask, sinks)
    close(out, key_by_key(*args, attn_mask, sinks, scale, is_causal, window))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("mask", [None, "bool", "additive"])
def test_grouped_heads_equal_torch(dtype, kv_heads, mask):
    torch.manual_seed(0)
    args = [x.to(dtype) for x in qkv(kv_heads=kv_heads, width=32, value_width=16)]
    attn_mask = None if mask is None else torch.randn(2, 1, 5, 7)
    attn_mask = attn_mask > 0 if mask == "bool" else attn_mask
    # torch computes in float32 on the same numbers, so only our final rounding differs.
    expected = torchs(*(x.float() for x in args), attn_mask=attn_mask, scale=0.25, enable_gqa=True)
    close(SDPA(scale=0.25)(*args, attn_mask), expected.to(dtype))


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7), (1, 7)])
def test_causal_equals_torch_lower_right(queries, keys):
    args = qkv(queries=queries, keys=keys, kv_heads=4, value_width=8)
    from torch.nn.attention.bias import causal_lower_right  # a second to import

    close(SDPA(is_causal=True)(*args), torchs(*args, attn_mask=causal_lower_right(queries, keys)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("additive", [False, True])
def test_query_without_visible_keys_returns_zeros_as_in_torch(dtype, additive):
    args = [x.to(dtype) for x in qkv(kv_heads=4, value_width=8)]
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    if additive:
        mask = torch.zeros(5, 7, dtype=dtype).masked_fill(~mask, -torch.inf)
    out, expected = SDPA()(*args, mask), torchs(*args, attn_mask=mask)
    assert torch.equal(out[:, :, 2], torch.zeros_like(out[:, :, 2]))
    assert torch.equal(expected[:, :, 2], out[:, :, 2])
    assert out.isfinite().all()


def test_more_queries_than_keys_returns_zeros_for_the_first():
    args = qkv(queries=5, keys=3)
    out = SDPA(is_causal=True)(*args)
    assert torch.equal(out[:, :, :2], torch.zeros(2, 4, 2, 6))
    close(out[:, :, 2:], SDPA(is_causal=True)(args[0][:, :, 2:], *args[1:]))


def test_mask_of_lowest_finite_numbers_equals_torch():
    args = qkv(kv_heads=4, value_width=8)
    mask = torch.full((5, 7), torch.finfo(torch.float32).min)
    close(SDPA()(*args, mask), torchs(*args, attn_mask=mask))


@pytest.mark.parametrize("window", [0, 3])
def test_sinks_equal_gpt_oss(window):
    gpt_oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    torch.manual_seed(1)
    args, sinks = qkv(queries=6, keys=6), torch.randn(4) * 3
    after = torch.ones(6, 6, dtype=torch.bool).triu(1)
    old = torch.ones(6, 6, dtype=torch.bool).tril(-window) if window else torch.zeros_like(after)
    mask = torch.zeros(6, 6).masked_fill(after | old, torch.finfo(torch.float32).min)
    layer = SimpleNamespace(num_key_value_groups=2, sinks=sinks, training=False)
    expected, _ = gpt_oss.eager_attention_forward(layer, *args, mask, scaling=8**-0.5)
    out = SDPA(is_causal=True, window_size=window)(*args, sinks=sinks)
    close(out.transpose(1, 2), expected)


def test_sink_of_a_query_without_visible_keys():
    args, nothing = qkv(), torch.zeros(5, 7, dtype=torch.bool)
    assert torch.equal(SDPA()(*args, nothing, torch.zeros(4)), torch.zeros(2, 4, 5, 6))
    off = torch.full((4,), -torch.inf)
    assert torch.equal(SDPA()(*args, nothing, off), torch.zeros(2, 4, 5, 6))
    close(SDPA()(*args, sinks=off), SDPA()(*args))


def test_window_implies_causal():
    args = qkv()
    windowed = SDPA(window_size=3)(*args)
    assert torch.equal(windowed, SDPA(is_causal=True, window_size=3)(*args))
    close(SDPA(window_size=100)(*args), SDPA(is_causal=True)(*args))


def test_logits_do_not_overflow_float16():
    query = torch.full((1, 1, 1, 64), 60.0).half()
    key, value = torch.full((1, 1, 3, 64), 60.0).half(), torch.ones(1, 1, 3, 64).half()
    assert torch.finfo(torch.float16).max < (60.0**2) * 64
    close(SDPA(scale=1.0)(query, key, value), torch.ones(1, 1, 1, 64).half())


@pytest.mark.parametrize("dtype", NARROW)
def test_float32_mask_and_sinks_with_narrow_inputs(dtype):
    args, mask, sinks = [x.to(dtype) for x in qkv()], torch.randn(5, 7), torch.randn(4)
    expected = SDPA()(*(x.float() for x in args), mask, sinks).to(dtype)
    close(SDPA()(*args, mask, sinks), expected)


def test_function_equals_module():
    args, mask, sinks = qkv(), torch.rand(5, 7) < 0.7, torch.randn(4)
    expected = SDPA(0.5, is_causal=True, window_size=3)(*args, mask, sinks)
    out = scaled_dot_product_attention(
        *args, attn_mask=mask, sinks=sinks, scale=0.5, is_causal=True, window_size=3
    )
    assert torch.equal(out, expected)


OPTIONS = [
    {},
    {"is_causal": True},
    {"is_causal": True, "window_size": 3},
    {"window_size": 3},
]


@pytest.mark.parametrize(
    ("options", "kv_heads", "strict"),
    [
        (OPTIONS[0], 1, False),
        (OPTIONS[1], 2, False),
        (OPTIONS[2], 2, False),
        (OPTIONS[3], 4, False),
        (OPTIONS[0], 4, True),
        (OPTIONS[2], 2, True),
    ],
)
def test_exports_with_dynamic_batch_and_sequence(options, kv_heads, strict):
    batch, seq = dims("batch", "seq")
    exports(
        SDPA(**options),
        qkv(kv_heads=kv_heads, queries=5, keys=5),
        qkv(1, kv_heads=kv_heads, queries=1, keys=1),
        qkv(3, kv_heads=kv_heads, queries=9, keys=9),
        dynamic_shapes=({0: batch, 2: seq},) * 3,
        strict=strict,
    )


class SelfAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SDPA(is_causal=True)

    def forward(self, x):
        return self.attention(x, x, x)


@pytest.mark.parametrize("strict", [False, True])
def test_self_attention_exports_without_the_nan_guard(strict):
    batch, seq = dims("batch", "seq")
    dynamic = ({0: batch, 2: seq},)
    sample, other = (torch.randn(2, 4, 5, 8),), (torch.randn(1, 4, 9, 8),)
    program = exports(SelfAttention(), sample, other, dynamic_shapes=dynamic, strict=strict)
    assert "aten.amax.default" not in targets(program)
    static = exports(SDPA(is_causal=True), qkv(queries=3, keys=4), strict=strict)
    assert "aten.amax.default" not in targets(static)


@pytest.mark.parametrize(
    ("options", "queries", "strict"),
    [
        *((options, queries, False) for options in OPTIONS for queries in (1, 4)),
        (OPTIONS[1], 1, True),
        (OPTIONS[2], 4, True),
    ],
)
def test_exports_a_static_query_with_dynamic_keys(options, queries, strict):
    (keys,) = dims("keys")
    program = exports(
        SDPA(**options),
        qkv(queries=queries, keys=7),
        qkv(queries=queries, keys=2),
        qkv(queries=queries, keys=31),
        dynamic_shapes=({}, {2: keys}, {2: keys}),
        strict=strict,
    )
    if queries == 1 and "window_size" not in options:
        assert "aten.where.self" not in targets(program)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("boolean", [False, True])
def test_exports_with_mask_and_sinks_and_all_sizes_dynamic(boolean, strict):
    batch, queries, keys = dims("batch", "queries", "keys")

    def inputs(b, q, k):
        mask = torch.randn(b, 1, q, k)
        return *qkv(batch=b, queries=q, keys=k), mask > 0 if boolean else mask, torch.randn(4)

    exports(
        SDPA(is_causal=True, window_size=4),
        inputs(2, 5, 7),
        inputs(3, 2, 9),
        inputs(1, 6, 3),
        dynamic_shapes=(
            {0: batch, 2: queries},
            {0: batch, 2: keys},
            {0: batch, 2: keys},
            {0: batch, 2: queries, 3: keys},
            {},
        ),
        strict=strict,
    )


@pytest.mark.parametrize("dtype", NARROW)
def test_exports_static_and_never_tiles_keys(dtype):
    args = tuple(x.to(dtype) for x in qkv(heads=12, kv_heads=2, width=8, value_width=8))
    program = exports(SDPA(is_causal=True), args)
    sizes = [node.meta["val"].numel() for node in program.graph.nodes if "val" in node.meta]
    assert max(sizes) < 2 * 12 * 7 * 8


def test_attributes_belong_to_the_instance():
    attention = SDPA(scale=0.5, is_causal=True, window_size=4)
    attributes = {"scale": 0.5, "is_causal": True, "window_size": 4, "version": 1}
    assert vars(attention).items() >= attributes.items()
    assert SDPA().scale is None


@pytest.mark.parametrize(
    ("sizes", "mask", "sinks", "message"),
    [
        ({"heads": 3}, None, None, "Nq is 3, not a multiple of Nkv = 2"),
        ({}, (5, 6), None, r"attn_mask is \[5, 6\].* \[2, 4, 5, 7\]"),
        ({}, (1, 2, 1, 5, 7), None, r"attn_mask is \[1, 2, 1, 5, 7\]"),
        ({}, None, 3, r"sinks is \[3\].* Nq is 4"),
    ],
)
def test_wrong_mask_or_sinks_raises(sizes, mask, sinks, message):
    mask = None if mask is None else torch.zeros(mask)
    with pytest.raises(ValueError, match=message):
        SDPA()(*qkv(**sizes), mask, None if sinks is None else torch.zeros(sinks))


def test_inconsistent_tensors_raise():
    query, key, value = qkv()
    with pytest.raises(ValueError, match=r"query is \[4, 5, 8\], expected \[B, Nq, Tq, D\]"):
        SDPA()(query[0], key, value)
    with pytest.raises(ValueError, match=r"key is .* but D is 8"):
        SDPA()(query, key[..., :5], value)
    with pytest.raises(ValueError, match=r"value is .* but Tkv is 7"):
        SDPA()(query, key, value[:, :, :4])
    with pytest.raises(ValueError, match=r"key is .* but B is 2"):
        SDPA()(query, key[:1], value)
    with pytest.raises(ValueError, match=r"attn_mask is torch.int64, allowed are torch.bool"):
        SDPA()(query, key, value, torch.ones(5, 7).long())
    with pytest.raises(ValueError, match=r"query is torch.float64"):
        SDPA()(query.double(), key, value)
    with pytest.raises(ValueError, match="window_size is -1"):
        SDPA(window_size=-1)
