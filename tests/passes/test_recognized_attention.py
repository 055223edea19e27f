"""Recognition of attention with grouped heads, masks and sinks, and near misses."""

from __future__ import annotations

import re

import pytest
import torch
from compat.programs import composites, externalized
from lazy_import import lazy_import
from passes.recognized import Plain, Several, assert_runs_as, check_recognition, converted, why
from torch import nn
from torch.nn import functional as F

from coreai_torch import ExternalizeSpec
from coreai_torch.composite_ops import SDPA

gpt_oss = lazy_import("transformers.models.gpt_oss.modeling_gpt_oss")
llama = lazy_import("transformers.models.llama.modeling_llama")

SLOW = pytest.mark.slow
FLOATS = [torch.float32, pytest.param(torch.float16, marks=SLOW), torch.bfloat16]
SDPA_NAME = "scaled_dot_product_attention"
SCALE = 8**-0.5


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def qkv(queries=3, keys=5, groups=2, batch=2, dtype=torch.float32):
    shapes = [(batch, 4, queries, 8), (batch, groups, keys, 8), (batch, groups, keys, 8)]
    return tuple(drawn(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes))


def causal(q, k):
    at = torch.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]
    hidden = torch.arange(k.shape[-2])[None] > at
    return torch.zeros_like(hidden, dtype=q.dtype).masked_fill(hidden, torch.finfo(q.dtype).min)


class _Attention(nn.Module):
    """The attributes that transformers' attention functions read from a module."""

    num_key_value_groups = 2

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.sinks = nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 0.0]))

    def forward(self, q, k, v):
        given = {"scaling": SCALE, "dropout": 0.0}
        return self.function(self, q, k, v, causal(q, k)[None, None], **given)[0]


def repeated(x):
    return x.repeat_interleave(2, 1)


def _filled(m, q, k, v):
    weights = q @ repeated(k).mT / 3.0
    weights = weights.masked_fill(causal(q, k) != 0, float("-inf"))
    return F.dropout(weights.softmax(-1), 0.1, training=False) @ repeated(v)


def _filled_finite(m, q, k, v):
    weights = (q @ repeated(k).mT * SCALE).masked_fill(causal(q, k) != 0, torch.finfo(q.dtype).min)
    return weights.softmax(-1) @ repeated(v)


def _chosen(m, q, k, v):
    """Boolean mask that is True for visible keys."""
    logits = q @ repeated(k).mT * SCALE
    lowest = torch.full([], torch.finfo(q.dtype).min, dtype=q.dtype)
    return torch.where(causal(q, k) == 0, logits, lowest).softmax(-1) @ repeated(v)


def _biased(m, q, k, v):
    """T5-like: no scale, a position bias and a mask."""
    weights = q @ repeated(k).transpose(3, 2)
    weights = weights + m.bias[:, :, : q.shape[2]] + causal(q, k)
    return weights.float().softmax(-1).type_as(weights) @ repeated(v)


def _one_head(m, q, k, v):
    """All query heads read the same keys, without a copy."""
    return (q @ k[:, :1].mT * SCALE).softmax(-1) @ v[:, :1]


def _folded(m, q, k, v):
    """Heads and batch on one axis."""
    q, k, v = q.flatten(0, 1), repeated(k).flatten(0, 1), repeated(v).flatten(0, 1)
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)


def _permuted(m, q, k, v):
    """Keys that are stored as `[batch, length, heads, width]`."""
    keys = repeated(k).permute(0, 2, 1, 3).contiguous()
    return (q @ keys.permute(0, 2, 3, 1) * SCALE).softmax(-1) @ repeated(v)


MODELS = {
    "llama": lambda: _Attention(llama.eager_attention_forward),
    "gpt_oss": lambda: _Attention(gpt_oss.eager_attention_forward),
    "filled": lambda: Plain(_filled),
    "filled_finite": lambda: Plain(_filled_finite),
    "chosen": lambda: Plain(_chosen),
    "biased": lambda: Plain(_biased, bias=drawn(1, 4, 3, 5)),
    "one_head": lambda: Plain(_one_head),
    "folded": lambda: Plain(_folded),
    "permuted": lambda: Plain(_permuted),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_form_is_recognized_as_attention(dtype):
    model = Several({name: make() for name, make in MODELS.items()}).to(dtype)
    # Eager rounds logits and weights to the narrow dtype; attention as one op does not.
    report = check_recognition(model, *qkv(dtype=dtype), wide=dtype != torch.float32)
    assert not report.missed
    assert [(row.composite, row.path) for row in report.found] == [
        (SDPA_NAME, f"models.{name}") for name in MODELS
    ]


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param("llama", 1, id="llama-decode", marks=SLOW),
        pytest.param("llama", 3, id="llama-prefill"),
        pytest.param("gpt_oss", 1, id="gpt_oss-decode"),
        pytest.param("gpt_oss", 3, id="gpt_oss-prefill", marks=SLOW),
    ],
)
def test_keys_are_not_repeated(name, steps):
    model = MODELS[name]()
    keys = {2: torch.export.Dim("keys", min=2, max=64)}
    queries = {2: torch.export.Dim("queries", min=2, max=64)} if steps > 1 else None
    q, k, v = qkv(queries=steps)
    program, report = converted(model, q, k, v, dynamic_shapes=(queries, keys, keys))
    assert report.counts == {SDPA_NAME: 1}
    (graph,) = composites(program, SDPA_NAME)
    assert graph.inputs == ["query", "key", "value", "attn_mask"] + (
        ["sinks"] if name == "gpt_oss" else []
    )
    assert "2x2x2x?x8" not in str(program)  # keys spread over [batch, groups, copies, ...]
    calls = [(q, k, v)]
    if steps > 1:
        calls.append((drawn(2, 4, 6, 8, seed=3), drawn(2, 2, 9, 8, seed=4), drawn(2, 2, 9, 8)))
    assert_runs_as(program, model, *calls)


@pytest.mark.parametrize("dtype", FLOATS[1:], ids=str)
def test_attention_in_half_precision_runs(dtype):
    model = Several({name: MODELS[name]() for name in ("llama", "gpt_oss", "filled")}).to(dtype)
    given = qkv(dtype=dtype)
    program, report = converted(model, *given)
    assert report.counts == {SDPA_NAME: 3}
    assert_runs_as(program, model, given)


def test_two_attentions_of_equal_types_keep_their_lengths():
    """The first has as many queries as keys; the second has fewer or more."""

    def both(m, q, k):
        return (q @ q.mT).softmax(-1) @ q, (q @ k.mT).softmax(-1) @ k

    model, given = Plain(both), (drawn(2, 4, 3, 8), drawn(2, 4, 5, 8, seed=1))
    sizes = ({2: torch.export.Dim("queries", max=64)}, {2: torch.export.Dim("keys", max=64)})
    program, report = converted(model, *given, dynamic_shapes=(sizes,))
    assert report.counts == {SDPA_NAME: 2}
    assert_runs_as(program, model, given, (drawn(2, 4, 6, 8), drawn(2, 4, 2, 8, seed=1)))


def test_keys_of_the_torch_op_are_not_repeated():
    def attend(m, q, k, v):
        return F.scaled_dot_product_attention(q, repeated(k), repeated(v), is_causal=True)

    model, given = Plain(attend), qkv(queries=5)
    program, report = converted(model, *given)
    assert report.counts == {SDPA_NAME: 1}
    assert report.found[0].kept
    assert "x2x2x" not in str(program)
    assert_runs_as(program, model, given)


def test_keys_of_an_unbounded_length_are_not_repeated():
    """torch keeps the slices of `x[:, :, None, :, :]`, which select all elements."""

    def attend(m, q, k, v):
        mask = causal(q, k)[None, None]
        keys, values = (llama.repeat_kv(x, 2) for x in (k, v))
        return F.scaled_dot_product_attention(q, keys, values, mask)

    model, given = Plain(attend), qkv()
    keys = {2: torch.export.Dim("keys")}
    sizes = ({2: torch.export.Dim("queries")}, keys, keys)
    program, report = converted(model, *given, dynamic_shapes=(sizes,))
    assert report.counts == {SDPA_NAME: 1}
    assert "x2x2x" not in str(program)
    assert_runs_as(program, model, given, qkv(queries=6, keys=9))


class _Module(nn.Module):
    def __init__(self, sinks):
        super().__init__()
        self.attend = SDPA(scale=SCALE)
        self.sinks = nn.Parameter(torch.zeros(4)) if sinks else None

    def forward(self, q, k, v):
        return self.attend(q, k, v, causal(q, k)[None, None], sinks=self.sinks)


@pytest.mark.parametrize("name", ["llama", "gpt_oss"])
def test_composite_equals_the_module(name):
    theirs, _ = converted(MODELS[name](), *qkv())
    spec = ExternalizeSpec(SDPA, SDPA_NAME, ["scale", "is_causal", "window_size", "version"])
    ours = externalized(_Module(name == "gpt_oss"), *qkv(), modules=[spec])
    (mine,), (wanted,) = composites(theirs, SDPA_NAME), composites(ours, SDPA_NAME)
    assert (mine.inputs, mine.outputs, mine.attrs) == (wanted.inputs, wanted.outputs, wanted.attrs)


def _capped(m, q, k, v):
    weights = (q @ repeated(k).mT * SCALE / 50.0).tanh() * 50.0
    return (weights + causal(q, k)).softmax(-1) @ repeated(v)


def _returned(m, q, k, v):
    weights = (q @ repeated(k).mT * SCALE).softmax(-1)
    return weights @ repeated(v), weights


def _masked_first(m, q, k, v):
    return ((q @ repeated(k).mT + m.bias) * SCALE).softmax(-1) @ repeated(v)


def _mild_fill(m, q, k, v):
    weights = (q @ repeated(k).mT).masked_fill(causal(q, k) != 0, -10.0)
    return weights.softmax(-1) @ repeated(v)


def _tempered(m, q, k, v):
    return (q @ repeated(k).mT * q[:1, :1, :1, :1]).softmax(-1) @ repeated(v)


def _logits_read(m, q, k, v):
    logits = q @ repeated(k).mT
    return logits.softmax(-1) @ repeated(v), logits


def _column_kept(m, q, k, v):
    logits = torch.cat((q @ repeated(k).mT, m.column.expand(2, 4, 3, 1)), -1)
    values = torch.cat((repeated(v), repeated(v)[:, :, :1]), -2)
    return logits.softmax(-1) @ values


NEAR_MISSES = {
    "capped": (_capped, {}, r"%tanh \(aten.tanh.default\) makes the logits"),
    "returned": (_returned, {}, "the weights are read by %output too"),
    "masked_first": (_masked_first, {"bias": drawn(3, 5)}, "the mask is added before the scale"),
    "mild_fill": (_mild_fill, {}, "the mask fills in -10.0, which other logits may reach"),
    "tempered": (_tempered, {}, "scales the logits by a factor that is not constant"),
    "logits_read": (_logits_read, {}, "inside of it, is read by the caller"),
    "column_kept": (
        _column_kept,
        {"column": drawn(1, 4, 1, 1)},
        "is not one number per head|joins the softmax or is dropped from it, but not both",
    ),
}


def test_near_misses_are_reported_and_unchanged():
    model = Several({name: Plain(function, **w) for name, (function, w, _) in NEAR_MISSES.items()})
    report = check_recognition(model, *qkv())
    assert report.counts == {}
    reasons = {row.path.removeprefix("models."): row.why for row in report.missed}
    assert reasons.keys() == NEAR_MISSES.keys()
    for name, (_, _, reason) in NEAR_MISSES.items():
        assert re.search(reason, reasons[name])


def test_mask_that_adds_an_axis_is_reported():
    model = Plain(lambda m, q, k, v: (q @ k.mT + m.mask).softmax(-1) @ v, mask=drawn(2, 1, 1, 3, 5))
    report = check_recognition(model, *qkv(groups=4))
    assert report.counts == {}
    assert "which does not expand to" in why(report, SDPA_NAME)


def test_softmax_of_a_classifier_is_not_reported():
    report = check_recognition(
        Plain(lambda m, x: (x @ m.w).softmax(-1), w=drawn(8, 4)), drawn(2, 8)
    )
    assert (report.found, report.missed) == ((), ())
