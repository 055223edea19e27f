"""Bundles of models with convolutions and recurrences beside attention."""

from __future__ import annotations

import json
from types import SimpleNamespace

import architectures
import pytest
import torch
from tiny_tokenizer import END, tiny_tokenizer

from coreai_torch import llm
from coreai_torch.composite_ops import GatedDeltaUpdate
from coreai_torch.errors import ConversionError
from coreai_torch.llm.bundle.metadata import CONVOLUTION, KEYS, RECURRENT, VALUES
from coreai_torch.llm.bundle.replacements import exportable
from coreai_torch.llm.bundle.runtime import Sequence


def _export(name, folder, **options):
    model, tokenizer = architectures.build(name), tiny_tokenizer()
    model.generation_config.eos_token_id = END
    path = folder / name
    llm.export(model, path, tokenizer=tokenizer, max_context_length=512, **options)
    return SimpleNamespace(model=model, tokenizer=tokenizer, path=path)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Return a model with a convolution, a recurrence and attention in one layer."""
    return _export("falcon_h1", tmp_path_factory.mktemp("hybrids"))


@pytest.fixture(scope="module")
def model(bundle):
    return llm.load(bundle.path)


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(0, 95, (1, 11), generator=torch.Generator().manual_seed(0))


def _want(bundle, tokens, count, **options):
    mask = torch.ones_like(tokens)
    return bundle.model.generate(tokens, attention_mask=mask, max_new_tokens=count, **options)


def test_states_are_named_after_keys_and_values(bundle, model):
    metadata = json.loads((bundle.path / "metadata.json").read_text())
    names = [KEYS, VALUES, CONVOLUTION, RECURRENT]
    assert sorted(names) == names
    assert metadata["language"]["states"] == dict(
        zip(names, ["kv_cache", "kv_cache", "fixed", "fixed"], strict=True)
    )
    assert not any(part in name.lower() for name in names[2:] for part in ("cache", "kv"))
    assert list(model._decoder.pool.runtime.ports.state_names) == names


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"do_sample": False, "num_beams": 3},
        {"temperature": 0.8, "do_sample": True, "num_return_sequences": 2},
    ],
)
def test_tokens_equal_transformers(bundle, model, tokens, options):
    torch.manual_seed(3)
    want = _want(bundle, tokens, 12, **options)
    assert torch.equal(model.generate(tokens, 12, seed=3, **options), want)


def test_prompts_of_different_lengths(bundle, model):
    texts = ["Hello", "A longer prompt"]
    together = model.generate(texts, 8)
    assert together == [llm.load(bundle.path).generate(text, 8) for text in texts]


def test_only_a_continuation_reuses_the_states(bundle, model, tokens):
    first = model.generate(tokens, 6, eos_token_id=127)
    longer = torch.cat([first, tokens[:, :3]], 1)
    fresh = llm.load(bundle.path)
    assert torch.equal(
        model.generate(longer, 6, eos_token_id=127), fresh.generate(longer, 6, eos_token_id=127)
    )
    assert model.reused_tokens == first.shape[1] - 1
    other = tokens[:, :5]  # a prefix, to which the states cannot return
    assert torch.equal(model.generate(other, 6), fresh.generate(other, 6))
    assert model.reused_tokens == 0


def test_prompt_cache_on_disk(bundle, model, tmp_path):
    text, path = "A long instruction. ", tmp_path / "prompt.safetensors"
    want = model.generate(text + "Go.", 8)
    model.save_prompt_cache(text, path)
    fresh = llm.load(bundle.path)
    assert fresh.load_prompt_cache(path) == len(text)
    assert fresh.generate(text + "Go.", 8) == want
    assert fresh.reused_tokens == len(text)
    other = tmp_path / "other.safetensors"
    want = model.generate(text, 8)
    assert llm.load(bundle.path).generate(text, 8, prompt_cache=other) == want
    fresh = llm.load(bundle.path)
    assert fresh.generate(text, 8, prompt_cache=other) == want
    assert fresh.reused_tokens == len(text) - 1


def test_sequence_runs_again_after_a_rewind(model, tokens):
    runtime = model._decoder.pool.runtime
    sequence = Sequence(runtime, runtime.states(fill=float("nan")))
    want = sequence.append(tokens[0])
    sequence.rewind(5)
    assert sequence.length == 0
    assert torch.equal(sequence.append(tokens[0]), want)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lfm2", "bamba", "qwen3_next"])
@pytest.mark.parametrize("compression", ["none", "4bit"])
def test_hybrid_conforms(tmp_path, name, compression):
    made = _export(name, tmp_path, compression=compression)
    report = llm.check(made.path, made.model)
    assert report.ok, str(report)
    assert "run again" in report.steps[7].detail


def test_hybrid_with_a_cache_of_8_bits_conforms(tmp_path):
    made = _export("lfm2", tmp_path, kv_cache="int8")
    report = llm.check(made.path, made.model)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("jamba", {}, "itself computes other logits if a prompt is run in chunks"),
        ("mamba", {}, "MambaForCausalLM has no attention, but the engine needs keys and values"),
        ("lfm2", {"target": "neural_engine"}, "the engine of static bundles does not keep"),
    ],
)
def test_rejected_hybrid_raises_with_the_rule(tmp_path, name, options, message):
    with pytest.raises(ConversionError, match=message):
        _export(name, tmp_path, **options)


def test_replacements_are_undone():
    model = architectures.build("llama4")
    moe = next(one for one in model.modules() if type(one).__name__ == "Llama4TextMoe")
    x = torch.randn(1, 5, moe.hidden_dim, generator=torch.Generator().manual_seed(0))
    before = type(moe).forward
    with torch.no_grad():
        want = moe(x)
        with exportable(model):
            assert type(moe).forward is not before
            got = moe(x)
    assert type(moe).forward is before
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_gated_delta_rule_exports_permuted_values():
    class Model(torch.nn.Module):
        def forward(self, x, state):
            key = x.transpose(1, 2)  # [1, heads, tokens, width] as a view
            g = -torch.ones(1, 2, x.shape[1])
            return GatedDeltaUpdate()(key, key, key, g, -g / 2, state)

    x, state = torch.randn(1, 5, 2, 4), torch.zeros(1, 2, 4, 4)
    sizes = ({1: torch.export.Dim("tokens")}, None)
    program = torch.export.export(Model(), (x, state), dynamic_shapes=sizes)
    longer = torch.randn(1, 9, 2, 4)
    for one, other in zip(program.module()(longer, state), Model()(longer, state), strict=True):
        torch.testing.assert_close(one, other)
