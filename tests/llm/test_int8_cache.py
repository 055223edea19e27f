"""Bundles that store keys and values in 8 bits."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from decoders import decoder, prompt
from tiny_tokenizer import END, tiny_tokenizer

from coreai_torch import llm
from coreai_torch.errors import ConversionError
from coreai_torch.llm.bundle.int8_cache import pack_rows, unpack_rows
from coreai_torch.llm.bundle.reference import difference, eager_logits
from coreai_torch.llm.bundle.runtime import BundleRuntime, Sequence

# Of the largest logit. The weights of this model are ten times larger than usual, so its attention
# is sharp: rounding alone changes the logits by 0.033 in torch, and by 0.005 with usual weights.
CACHE_ERROR = 0.05


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    model = decoder("llama", max_position_embeddings=2048, eos_token_id=END)
    path = tmp_path_factory.mktemp("int8") / "int8_llama"
    llm.export(model, path, tokenizer=tiny_tokenizer(), kv_cache="int8")
    return SimpleNamespace(model=model, path=path)


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 3e4, 1e30])
def test_rounding_changes_an_element_by_a_small_part_of_its_row(size):
    rows = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0)) * size
    packed = pack_rows(rows)
    assert (packed.dtype, tuple(packed.shape)) == (torch.int8, (3, 5, 18))
    error = (unpack_rows(packed, torch.float32) - rows).abs().amax(-1)
    assert bool((error <= rows.abs().amax(-1) / 250).all())


def test_rows_of_zeros_stay_zeros():
    assert not unpack_rows(pack_rows(torch.zeros(2, 4)), torch.float16).any()


@pytest.mark.parametrize("exponent", range(-24, 16))
def test_powers_of_two_do_not_overflow_the_integers(exponent):
    rows = torch.tensor([[2.0**exponent, -(2.0**exponent), 0.0]])
    torch.testing.assert_close(
        unpack_rows(pack_rows(rows), torch.float32), rows, rtol=0.004, atol=0
    )


def test_metadata_names_the_cache(bundle):
    facts = json.loads((bundle.path / "metadata.json").read_text())["user_data"]
    assert facts["coreai_torch.kv_cache"] == "int8"
    assert facts["coreai_torch.dtype"] == "float32"


def test_states_are_int8_with_two_more_columns(bundle):
    runtime = BundleRuntime(bundle.path)
    assert runtime.state_shape == (2, 1, 2, -1, 18)
    assert runtime.state_dtype == torch.int8
    assert runtime.compute_dtype == torch.float32


def test_bundle_conforms(bundle):
    report = llm.check(bundle.path, bundle.model)
    assert [step.status for step in report.steps] == ["ok"] * 10, str(report)
    assert "int8, for the pipelined engine only" in report.steps[2].detail


def test_logits_are_close_to_those_of_a_float_cache(bundle):
    tokens = prompt(40)[0]
    rows = Sequence(BundleRuntime(bundle.path)).append(tokens)
    gap = difference(rows, eager_logits(bundle.model, tokens))
    assert 1e-4 < gap < CACHE_ERROR


def test_prompt_cache_on_disk_continues(bundle, tmp_path):
    lm, fresh = llm.load(bundle.path), llm.load(bundle.path)
    want = fresh.generate("Hello world, this is", 8)
    lm.save_prompt_cache("Hello world", tmp_path / "cache.safetensors")
    other = llm.load(bundle.path)
    other.load_prompt_cache(tmp_path / "cache.safetensors")
    assert other.generate("Hello world, this is", 8) == want
    assert other.reused_tokens >= len("Hello world") - 1


def test_evaluation_separates_the_cache_from_the_conversion(bundle, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. " * 4)
    report = llm.evaluate(bundle.path, text=text, model=bundle.model)
    assert set(report.scores) == {"bundle", "compressed", "eager"}
    changes = report.differences()
    assert set(changes) == {"conversion", "compression"}


def test_vision_language_model_is_rejected(tmp_path):
    from vision_models import vision_model

    with pytest.raises(ConversionError, match="vision-language bundles cannot run an int8 cache"):
        llm.export(
            vision_model("gemma3"), tmp_path / "out", tokenizer=tiny_tokenizer(), kv_cache="int8"
        )
