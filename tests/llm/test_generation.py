"""Greedy tokens of converted decoders are those of `generate(do_sample=False)`."""

from __future__ import annotations

import pytest
import runtime
import torch
from decoders import DECODERS, decoder, greedy, prompt

from coreai_torch import llm

LENGTHS = (1, 2, 5, 20, 32)


@pytest.fixture(scope="module")
def llama():
    model = decoder("llama")
    return model, llm.convert(model, 48)


@pytest.fixture(scope="module")
def generator(llama, tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "llama.aimodel"
    llama[1].save_asset(path)
    return llm.Generator(path)


@pytest.mark.parametrize("length", [1, 2, 5, 32])
def test_tokens_of_llama_equal_those_of_transformers(llama, generator, length):
    tokens = prompt(length)
    want = greedy(llama[0], tokens, 16)
    assert len(set(want[0, length:].tolist())) > 8
    assert torch.equal(generator.generate(tokens, max_new_tokens=16), want)


def test_the_program_has_two_entrypoints_over_one_cache(llama):
    names = ["keys_0", "values_0", "keys_1", "values_1"]
    for entrypoint in ("prefill", "decode"):
        ports = runtime.descriptor(llama[1], entrypoint)
        assert ports.input_names == ["input_ids", "position"]
        assert ports.output_names == ["logits"]
        assert ports.state_names == names


@pytest.mark.slow
@pytest.mark.parametrize("recognize", [True, False], ids=["recognized", "plain"])
@pytest.mark.parametrize("name", DECODERS)
def test_tokens_equal_those_of_transformers(name, recognize, tmp_path):
    model = decoder(name)
    asset = llm.convert(model, 64, recognize=recognize).save_asset(tmp_path / "m.aimodel")
    generator = llm.Generator(asset)
    for length in LENGTHS:
        tokens = prompt(length)
        want = greedy(model, tokens, 32)
        assert len(set(want[0, length:].tolist())) > 8
        assert torch.equal(generator.generate(tokens, 32), want), length
