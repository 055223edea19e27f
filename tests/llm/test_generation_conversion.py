"""What `llm.convert` refuses, and how much of a model its assets hold."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from coreai.authoring import AIModelAsset
from decoders import SMALL, decoder, greedy, prompt

import coreai_torch
from coreai_torch import llm
from coreai_torch.errors import ConversionError, GenerationError


def _without_head():
    import transformers

    return transformers.LlamaModel(transformers.LlamaConfig(**SMALL)).eval()


def _recurrent():
    import transformers

    config = transformers.MambaConfig(
        vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=1
    )
    return transformers.MambaForCausalLM(config).eval()


def _mixed():
    import transformers

    kinds = {"layer_types": ["full_attention", "conv"], "block_multiple_of": 8}
    config = transformers.Lfm2Config(**{**SMALL, **kinds})
    return transformers.Lfm2ForCausalLM(config).eval()


@pytest.mark.parametrize(
    ("model", "given", "told"),
    [
        (lambda: torch.nn.Linear(2, 2), {}, "Linear is no model of transformers"),
        (_without_head, {}, "LlamaModel is no model of transformers that can generate"),
        (lambda: decoder("llama").train(), {}, "is in training mode"),
        (lambda: decoder("llama"), {"max_length": 3}, "max_length is 3"),
        (lambda: decoder("llama"), {"batch_size": 0}, "batch_size is 0"),
        (lambda: decoder("llama"), {"max_length": 129}, "LlamaForCausalLM has 128 positions"),
        (_recurrent, {}, "MambaForCausalLM remembers in a cache of its own kind"),
        (_mixed, {}, "Lfm2ForCausalLM remembers in LinearAttentionLayer"),
    ],
    ids=["other", "headless", "training", "short", "empty", "positions", "recurrent", "mixed"],
)
def test_what_cannot_be_converted_is_refused_with_the_way_out(model, given, told):
    with pytest.raises(ConversionError) as error:
        llm.convert(model(), **{"max_length": 64, **given})
    assert told in str(error.value)
    assert "\n  try   " in str(error.value)


def test_an_asset_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "linear.aimodel"
    coreai_torch.convert(torch.nn.Linear(2, 2), (torch.ones(1, 2),), verify=False, output=path)
    with pytest.raises(GenerationError, match="does not say how to generate"):
        llm.Generator(path)
    with pytest.raises(GenerationError, match="a Linear cannot be run"):
        llm.Generator(torch.nn.Linear(2, 2))


@pytest.mark.slow
def test_transformers_is_not_imported_before_a_model_is_converted():
    code = "import coreai_torch.llm, sys; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@pytest.mark.slow
def test_weights_are_stored_once_for_both_entrypoints_even_tied_ones(tmp_path):
    # An embedding of more than 2^18 elements: smaller ones are stored in each layout of use.
    model = decoder("llama", vocab_size=5000, tie_word_embeddings=True)
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    path = tmp_path / "tied.aimodel"
    asset = llm.convert(model, 64).save_asset(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    assert weights < size < weights + 60_000
    tokens = prompt(5)
    assert torch.equal(llm.Generator(asset).generate(tokens, 16), greedy(model, tokens, 16))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_gives_the_tokens_of_torch(dtype, tmp_path):
    model = decoder("llama").to(dtype)
    path = tmp_path / "half.aimodel"
    llm.convert(model, 64).save_asset(path)
    generator = llm.Generator(AIModelAsset.load(path))
    for length in (1, 5):
        tokens = prompt(length)
        assert torch.equal(generator.generate(tokens, 16), greedy(model, tokens, 16))
