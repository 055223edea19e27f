"""`llm.convert(verify=True)` runs the saved program: wrong lowerings raise, states carry over."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from decoders import decoder

from coreai_torch import llm
from coreai_torch.errors import ConversionError
from coreai_torch.ir import dialect
from coreai_torch.llm import checking
from coreai_torch.lowering.registry import BUILTIN
from coreai_torch.verification import engines


@pytest.fixture
def wrong_silu(monkeypatch):
    """Replace the lowering of `silu` by one whose results are off by 2 %."""
    entry = BUILTIN.get("aten::silu")

    def wrong(ctx, **arguments):
        result = entry.fn(ctx, **arguments)
        return dialect.mul(result, dialect.like(result, 1.02))

    changed = dataclasses.replace(entry, fn=wrong)
    changed.__dict__["signature"] = entry.signature  # the wrapper's own has no parameters
    monkeypatch.setitem(BUILTIN._own, "aten::silu", changed)


def test_a_wrong_lowering_raises(wrong_silu):
    model = decoder("llama")
    with pytest.raises(
        ConversionError,
        match="converted program of LlamaForCausalLM computes other numbers than the model: "
        "prefill of 8 tokens differs by",
    ):
        llm.convert(model, 16)
    assert llm.convert(model, 16, verify=False).description.max_length == 16


def test_decoding_continues_from_the_states_of_the_prefill(monkeypatch):
    calls = []
    original = engines.Isolated.call

    def recorded(self, inputs, states):
        outputs, after = original(self, inputs, states)
        filled = {n: int((abs(s).sum((0, 1, 3)) > 0).sum()) for n, s in after.items()}
        calls.append((inputs["input_ids"].shape[1], int(inputs["position"][0]), filled["keys_0"]))
        return outputs, after

    monkeypatch.setattr(engines.Isolated, "call", recorded)
    llm.convert(decoder("llama"), 16)
    assert calls == [(8, 0, 8), (1, 8, 9), (1, 9, 10), (1, 10, 11), (1, 11, 12)]


def test_float16_is_run_by_torch(monkeypatch):
    started, original = [], checking.start

    def recorded(engine, *args, **kwargs):
        started.append(engine)
        return original(engine, *args, **kwargs)

    monkeypatch.setattr(checking, "start", recorded)
    llm.convert(decoder("llama").to(torch.float16), 16)
    assert started == [engines.Engine.TORCH] * 2


def test_float16_is_compared_in_float32(wrong_silu):
    # In bfloat16 the fault of 2 % is as large as two roundings, and is accepted.
    with pytest.raises(ConversionError, match=r"differs from float32 by .*, the model itself by"):
        llm.convert(decoder("llama").to(torch.float16), 16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_accepted(dtype):
    assert llm.convert(decoder("qwen3").to(dtype), 16).description.max_length == 16
