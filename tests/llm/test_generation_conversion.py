"""Errors of `llm.convert`, and the size and numbers of the assets that it writes."""

from __future__ import annotations

import functools
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
    ("model", "arguments", "message"),
    [
        (lambda: torch.nn.Linear(2, 2), {}, "Linear is not a transformers model"),
        (_without_head, {}, "LlamaModel is not a transformers model that can generate"),
        (lambda: decoder("llama").train(), {}, "is in training mode"),
        (lambda: decoder("llama"), {"max_length": 3}, "max_length is 3"),
        (lambda: decoder("llama"), {"batch_size": 0}, "batch_size is 0"),
        (lambda: decoder("llama"), {"max_length": 129}, "LlamaForCausalLM has 128 positions"),
        (_recurrent, {}, "MambaForCausalLM stores its state in an unknown kind of cache"),
        (_mixed, {}, "Lfm2ForCausalLM stores its state in LinearAttentionLayer"),
    ],
    ids=["other", "headless", "training", "short", "empty", "positions", "recurrent", "mixed"],
)
def test_unsupported_model_or_size_raises_with_a_hint(model, arguments, message):
    with pytest.raises(ConversionError) as error:
        llm.convert(model(), **{"max_length": 64, **arguments})
    assert message in str(error.value)
    assert "\n  try   " in str(error.value)


def test_generator_rejects_other_sources(tmp_path):
    path = tmp_path / "linear.aimodel"
    coreai_torch.convert(torch.nn.Linear(2, 2), (torch.ones(1, 2),), verify=False, output=path)
    with pytest.raises(GenerationError, match="has no generation metadata"):
        llm.Generator(path)
    with pytest.raises(GenerationError, match="there is no asset at"):
        llm.Generator(tmp_path / "other.aimodel")
    with pytest.raises(GenerationError, match="Generator cannot run a Linear"):
        llm.Generator(torch.nn.Linear(2, 2))


@pytest.mark.slow
def test_importing_llm_does_not_import_transformers():
    code = "import coreai_torch.llm, sys; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("turn", [True, False], ids=["transposed", "unchanged"])
def test_tied_weights_are_stored_once_for_both_entry_points(tmp_path, turn):
    # The embedding has more than 2^18 elements: smaller ones are stored once for each layout.
    model = decoder("llama", vocab_size=5000, tie_word_embeddings=True, attention_bias=True)
    weights = sum(weight.nbytes for weight in model.parameters())
    path = tmp_path / "tied.aimodel"
    program = llm.convert(model, 64, turn_weights=turn)
    head = "tensor<64x5000xf32>" if turn else "tensor<5000x64xf32>"
    constants = [line for line in str(program).splitlines() if "constant dense_resource" in line]
    assert sum(head in line for line in constants) == 2  # one resource, used in two graphs
    asset = program.save_asset(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    assert weights < size < weights + 60_000
    tokens = prompt(5)
    assert torch.equal(llm.Generator(asset).generate(tokens, 16), greedy(model, tokens, 16))


@pytest.mark.slow
def test_model_that_ignores_the_cache_position_raises():
    import transformers

    class Restarting(transformers.LlamaForCausalLM):
        def forward(self, input_ids, **more):
            count = torch.arange(input_ids.shape[1])[None]
            return super().forward(input_ids, position_ids=count, **more)

    model = Restarting(transformers.LlamaConfig(**SMALL)).eval()
    with pytest.raises(ConversionError, match=r"computes other numbers .*: decode differs by"):
        llm.convert(model, 16)
    assert llm.convert(model, 16, verify=False).description.max_length == 16


@pytest.mark.slow
def test_compressed_weights_stay_compressed(tmp_path):
    model = decoder("llama", vocab_size=2048, hidden_size=128, tie_word_embeddings=True)
    weights = coreai_torch.compress(model, "int4", block_size=32).bytes
    path = tmp_path / "int4.aimodel"
    llm.convert(model, 64).save_asset(path)
    assert weights < sum(file.stat().st_size for file in path.iterdir()) < weights + 60_000
    generator = llm.Generator(path)
    for length in (1, 5):
        tokens = prompt(length)
        assert torch.equal(generator.generate(tokens, 32), greedy(model, tokens, 32))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("length", [1, 5])
def test_half_precision_logits_equal_torch(half_generator, dtype, length):
    model, generator = half_generator(dtype)
    want = greedy(model, prompt(length), 16)
    seen = []

    def force_want(tokens, logits):
        seen.append(logits)
        return torch.nn.functional.one_hot(want[:, tokens.shape[1]], logits.shape[1]).float()

    generator.generate(prompt(length), 16, logits_processor=force_want)
    with torch.no_grad():
        expected = model(input_ids=want[:, :-1]).logits[0, length - 1 :].float()
    actual = torch.cat(seen)
    # Two layers round to 8 or 11 bits, and the runtime of Linux rounds each float16 sum where
    # torch adds in float32. Measured differences: 0.074 of 6.0 in float16, 0.108 in bfloat16.
    assert (actual - expected).abs().max() < 0.02 * expected.abs().max()
    # One of 32 float16 tokens differs: its two best logits are 0.003 apart in float32.
    assert (actual.argmax(-1) == want[0, length:]).sum() >= (15 if dtype is torch.float16 else 16)


@pytest.fixture(scope="module")
def half_generator(tmp_path_factory):
    @functools.cache
    def convert(dtype):
        model = decoder("llama").to(dtype)
        path = tmp_path_factory.mktemp("half") / "half.aimodel"
        llm.convert(model, 64).save_asset(path)
        return model, llm.Generator(AIModelAsset.load(path))

    return convert
