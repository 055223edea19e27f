"""`F.scaled_dot_product_attention` and the attention modules of torch."""

from __future__ import annotations

import re

import pytest
import torch
from module_runner import check, convert
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

from coreai_torch.errors import UnsupportedArgumentError

AUTO = torch.export.Dim.AUTO


def qkv(queries=3, keys=5, heads=2, kv_heads=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    return tuple(torch.randn(2, n, length, 8, generator=generator) for n, length in sizes)


def contracts(program):
    found = re.findall(
        r'"scaled_dot_product_attention" = \{input_names = \[(.*?)\], op_attrs = \{(.*?)\}',
        str(program),
    )
    return [
        (i.replace('"', "").split(", "), dict(re.findall(r"(\w+) = ([^ ,]+)", a))) for i, a in found
    ]


def test_attributes_of_the_composite():
    ((inputs, attributes),) = contracts(convert(sdpa, qkv()))
    assert inputs == ["query", "key", "value"]
    assert set(attributes) == {"scale", "is_causal", "window_size", "version"}
    assert (attributes["is_causal"], attributes["window_size"]) == ("false", "0")
    assert float(attributes["scale"]) == pytest.approx(8**-0.5)


def test_causal_mask_of_unequal_lengths_becomes_a_mask_operand():
    # Torch aligns the causal mask with the first key, the composite with the last key.
    causal = lambda *x: sdpa(*x, is_causal=True)  # noqa: E731
    ((inputs, attributes),) = contracts(convert(causal, qkv(3, 5)))
    assert (inputs[3:], attributes["is_causal"]) == (["attn_mask"], "false")
    ((inputs, attributes),) = contracts(convert(causal, qkv(5, 5)))
    assert (inputs[3:], attributes["is_causal"]) == ([], "true")


@pytest.mark.parametrize("value", [True, 0.0], ids=["bool", "float"])
def test_mask_without_effect_is_dropped(value):
    # transformers passes its encoders a mask of ones, computed from constants.
    masked = lambda *x: sdpa(*x, attn_mask=torch.full((3, 5), value))  # noqa: E731
    ((inputs, _),) = contracts(check(masked, qkv()))
    assert inputs == ["query", "key", "value"]


def test_equal_dynamic_lengths_use_the_causal_flag():
    length = torch.export.Dim("length", max=64)
    sizes = ({2: length},) * 3
    causal = lambda *x: sdpa(*x, is_causal=True)  # noqa: E731
    program = check(causal, qkv(5, 5), qkv(9, 9), qkv(1, 1), dynamic_shapes=sizes)
    assert contracts(program)[0][1]["is_causal"] == "true"


def test_static_query_and_dynamic_cache():
    keys = torch.export.Dim("keys", max=64)
    sizes = (None, {2: keys}, {2: keys})
    check(sdpa, qkv(1, 5), qkv(1, 9), qkv(1, 2), dynamic_shapes=sizes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_of_half_precision_runs_in_float32(dtype):
    # float16 sums misorder logits of 300, and float16 exponentials overflow.
    query, key, value = (x.to(dtype) for x in qkv())
    check(lambda *x: sdpa(*x, scale=6.0), (query * 8, key * 8, value))


def test_grouped_heads_do_not_copy_keys():
    grouped = lambda *x: sdpa(*x, enable_gqa=True)  # noqa: E731
    program = check(grouped, qkv(heads=6, kv_heads=2))
    assert "tensor<2x6x5x8xf32>" not in str(program)  # no key is copied for another head


def test_dropout_is_rejected():
    with pytest.raises(UnsupportedArgumentError, match=r"dropout_p"):
        convert(lambda *x: sdpa(*x, dropout_p=0.5), qkv())


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
PADDING = torch.tensor([[False, False, False, True, True], [False] * 5])


class Attends(nn.Module):
    """`nn.MultiheadAttention` as self-attention."""

    def __init__(self, *, module=None, **options):
        super().__init__()
        torch.manual_seed(2)
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True, **(module or {}))
        self.options = options

    def forward(self, x):
        return [r for r in self.inner(x, x, x, **self.options) if r is not None]


ATTENDS = {
    "with its weights": Attends(),
    "without its weights": Attends(need_weights=False),
    "weights of every head": Attends(average_attn_weights=False),
    "padded": Attends(key_padding_mask=PADDING, need_weights=False),
    "padded, with weights": Attends(key_padding_mask=PADDING),
    "causal": Attends(
        attn_mask=nn.Transformer.generate_square_subsequent_mask(5),
        is_causal=True,
        need_weights=False,
    ),
    "masked": Attends(attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1), need_weights=False),
    "no bias": Attends(module={"bias": False}, need_weights=False),
    "bias for keys": Attends(module={"add_bias_kv": True}, need_weights=False),
    "a key of zeros": Attends(module={"add_zero_attn": True}, need_weights=False),
}


@pytest.mark.parametrize("name", ATTENDS)
def test_multihead_attention(name):
    check(ATTENDS[name].eval(), (X,))


def test_multihead_attention_with_other_widths_unbatched_and_sequence_first():
    torch.manual_seed(3)
    other = nn.MultiheadAttention(8, 2, kdim=6, vdim=4).eval()
    check(other, (X.transpose(0, 1), torch.randn(7, 2, 6), torch.randn(7, 2, 4)))
    check(nn.MultiheadAttention(8, 4).eval(), (X[0], X[1], X[1]))


def test_multihead_attention_with_dynamic_lengths():
    torch.manual_seed(4)
    other = torch.randn(3, 9, 8)
    check(
        ATTENDS["without its weights"].eval(), (X,), (other,), dynamic_shapes=({0: AUTO, 1: AUTO},)
    )


class Masked(nn.Module):
    """Call a module with fixed keyword arguments."""

    def __init__(self, module, **options):
        super().__init__()
        self.module, self.options = module.eval(), options

    def forward(self, *args):
        return self.module(*args, **self.options)


def _layer(**options):
    torch.manual_seed(5)
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
LAYERS = {
    "encoder layer": Masked(_layer()),
    "encoder layer, norm first": Masked(_layer(norm_first=True, activation="gelu")),
    "encoder layer, padded": Masked(_layer(), src_key_padding_mask=PADDING),
    "encoder layer, causal": Masked(_layer(), src_mask=CAUSAL, is_causal=True),
    "encoder": Masked(nn.TransformerEncoder(_layer(), 2, enable_nested_tensor=False)),
    "encoder, padded": Masked(
        nn.TransformerEncoder(_layer(), 2, enable_nested_tensor=False), src_key_padding_mask=PADDING
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_transformer_encoders(name):
    check(LAYERS[name].eval(), (X,))


def test_transformer_decoder():
    torch.manual_seed(6)
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    decoder = Masked(nn.TransformerDecoder(layer, 2), tgt_mask=CAUSAL, tgt_is_causal=True)
    check(decoder.eval(), (X, torch.randn(2, 7, 8)))
