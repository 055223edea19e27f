"""Greedy tokens of converted decoders are those of `generate(do_sample=False)`."""

from __future__ import annotations

import asyncio

import pytest
import runtime
import torch
from decoders import DECODERS, decoder, greedy, prompt

from coreai_torch import llm
from coreai_torch.errors import GenerationError

BATCH, PLACES = 2, 48


@pytest.fixture(scope="module")
def llama():
    model = decoder("llama")
    return model, llm.convert(model, PLACES, batch_size=BATCH)


@pytest.fixture(scope="module")
def generator(llama, tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "llama.aimodel"
    llama[1].save_asset(path)
    return llm.Generator(path)


@pytest.mark.parametrize("length", [1, 2, 5, 32])
def test_tokens_of_llama_equal_those_of_transformers(llama, generator, length):
    tokens = prompt(length, BATCH)
    want = greedy(llama[0], tokens, 16)
    assert len(set(want[:, length:].flatten().tolist())) > 8
    assert torch.equal(generator.generate(tokens, max_new_tokens=16), want)


def test_the_program_has_two_entrypoints_over_one_cache(llama):
    for entrypoint in ("prefill", "decode"):
        ports = runtime.descriptor(llama[1], entrypoint)
        assert ports.input_names == ["input_ids", "position"]
        assert ports.output_names == ["logits"]
        assert ports.state_names == ["keys_0", "values_0", "keys_1", "values_1"]


def test_a_prompt_can_be_given_in_pieces(llama):
    model, program = llama
    tokens = prompt(12, BATCH)
    pieces = [(tokens[:, :5], 0), (tokens[:, 5:], 5)]
    feeds = [{"input_ids": one, "position": torch.tensor([at])} for one, at in pieces]
    empty = torch.zeros(BATCH, 2, PLACES, 16)
    names = [f"{kind}_{layer}" for layer in range(2) for kind in ("keys", "values")]
    made, _ = runtime.run_steps(program, feeds, dict.fromkeys(names, empty), "prefill")
    with torch.no_grad():
        want = model(input_ids=tokens).logits[:, -1]
    torch.testing.assert_close(made["logits"], want, rtol=1e-5, atol=1e-5 * float(want.abs().max()))


def test_a_row_ends_at_its_end_token_and_is_padded(llama, generator):
    tokens = prompt(5, BATCH)
    first, second = greedy(llama[0], tokens, 16)[:, 5:].tolist()
    end = next(one for one in first[3:] if one not in second)
    want = greedy(llama[0], tokens, 16, eos_token_id=end)
    assert want.shape[1] == 21
    assert want[0].eq(end).sum() > 1
    assert torch.equal(generator.generate(tokens, 16, eos_token_id=end), want)


def test_it_stops_when_all_rows_have_ended(llama, generator):
    tokens = prompt(5, BATCH)
    ends = [int(one) for one in greedy(llama[0], tokens, 4)[:, -1]]
    want = greedy(llama[0], tokens, 16, eos_token_id=ends)
    assert want.shape[1] == 9
    assert torch.equal(generator.generate(tokens, 16, eos_token_id=ends), want)


def test_the_cache_is_filled_to_its_end_by_default(llama, generator):
    tokens = prompt(40, BATCH)
    assert torch.equal(generator.generate(tokens), greedy(llama[0], tokens, PLACES - 40))


def test_what_a_tokenizer_returns_is_taken_as_it_is(generator):
    tokens = prompt(5, BATCH)
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    assert torch.equal(generator.generate(**given, max_new_tokens=3), generator.generate(tokens, 3))


def test_tokens_come_as_they_are_made(generator):
    whole = generator.generate(prompt(5, BATCH), 6)
    made = []
    for new in generator.stream(prompt(5, BATCH), 6):
        made.append(new)
        if len(made) == 2:
            break
    assert torch.equal(torch.stack(made, 1), whole[:, 5:7])


def test_logits_processors_of_transformers_fit(llama, generator):
    from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

    tokens = prompt(5, BATCH)
    processor = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.5)])
    want = greedy(llama[0], tokens, 16, repetition_penalty=1.5)
    assert not torch.equal(want, greedy(llama[0], tokens, 16))
    assert torch.equal(generator.generate(tokens, 16, logits_processor=processor), want)


def test_it_runs_where_a_loop_runs_already(generator):
    async def notebook():
        return generator.generate(prompt(2, BATCH), 2)

    assert asyncio.run(notebook()).shape == (BATCH, 4)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"inputs": prompt(5)}, "a batch of 1, the program was converted for one of 2"),
        ({"inputs": prompt(49, BATCH)}, "input_ids are 49 tokens, the cache has 48 places"),
        ({"inputs": prompt(40, BATCH), "max_new_tokens": 9}, "a cache of 48 has 8 places"),
        ({"inputs": prompt(5, BATCH), "max_new_tokens": -1}, "max_new_tokens is -1"),
        ({"inputs": prompt(5, BATCH, 999)}, "the model has the tokens 0 to 255"),
        ({"inputs": torch.randn(2, 5)}, "torch.float32 of shape [2, 5]"),
        ({"inputs": prompt(5, BATCH)[0]}, "torch.int64 of shape [5]"),
        ({}, "0 inputs are given"),
        (
            {"inputs": prompt(5, BATCH), "attention_mask": torch.tensor([[0, 1, 1, 1, 1]] * 2)},
            "attention_mask hides tokens",
        ),
        (
            {"inputs": prompt(5, BATCH), "decoder_input_ids": prompt(1, BATCH)},
            "the model has no encoder",
        ),
    ],
    ids=[
        "batch",
        "prompt",
        "cache",
        "negative",
        "token",
        "float",
        "row",
        "none",
        "mask",
        "decoder",
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(generator, given, told):
    with pytest.raises(GenerationError) as error:
        generator.generate(**given)
    assert told in str(error.value)
    assert "\n  try   " in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("recognize", [True, False], ids=["recognized", "plain"])
@pytest.mark.parametrize("name", DECODERS)
def test_tokens_equal_those_of_transformers(name, recognize, tmp_path):
    model = decoder(name)
    asset = llm.convert(model, 64, recognize=recognize).save_asset(tmp_path / "m.aimodel")
    generator = llm.Generator(asset)
    for length in (1, 2, 5, 20, 32):
        tokens = prompt(length)
        want = greedy(model, tokens, 32)
        assert len(set(want[0, length:].tolist())) > 4
        assert torch.equal(generator.generate(tokens, 32), want), length
