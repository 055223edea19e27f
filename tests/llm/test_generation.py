"""Greedy tokens of converted decoders equal `generate(do_sample=False)` of transformers."""

from __future__ import annotations

import asyncio

import pytest
import runtime
import torch
from decoders import DECODERS, decoder, greedy, prompt

from coreai_torch import llm
from coreai_torch.errors import GenerationError

BATCH, MAX_LENGTH = 2, 48


@pytest.fixture(scope="module")
def llama():
    model = decoder("llama")
    return model, llm.convert(model, MAX_LENGTH, batch_size=BATCH)


@pytest.fixture(scope="module")
def generator(llama, tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "llama.aimodel"
    llama[1].save_asset(path)
    return llm.Generator(path)


@pytest.mark.parametrize("length", [1, 2, 5, 32])
def test_llama_tokens_equal_transformers(llama, generator, length):
    tokens = prompt(length, BATCH)
    want = greedy(llama[0], tokens, 16)
    assert len(set(want[:, length:].flatten().tolist())) > 8
    assert torch.equal(generator.generate(tokens, max_new_tokens=16), want)


def test_program_has_two_entry_points_with_one_cache(llama):
    for entrypoint in ("prefill", "decode"):
        ports = runtime.descriptor(llama[1], entrypoint)
        assert ports.input_names == ["input_ids", "position"]
        assert ports.output_names == ["logits"]
        assert ports.state_names == ["keys_0", "values_0", "keys_1", "values_1"]


def test_prompt_in_two_pieces(llama):
    model, program = llama
    tokens = prompt(12, BATCH)
    pieces = [(tokens[:, :5], 0), (tokens[:, 5:], 5)]
    feeds = [{"input_ids": piece, "position": torch.tensor([at])} for piece, at in pieces]
    empty = torch.zeros(BATCH, 2, MAX_LENGTH, 16)
    names = [f"{kind}_{layer}" for layer in range(2) for kind in ("keys", "values")]
    got, _ = runtime.run_steps(program, feeds, dict.fromkeys(names, empty), "prefill")
    with torch.no_grad():
        want = model(input_ids=tokens).logits[:, -1]
    torch.testing.assert_close(got["logits"], want, rtol=1e-5, atol=1e-5 * float(want.abs().max()))


def test_row_is_padded_after_its_end_token(llama, generator):
    tokens = prompt(5, BATCH)
    first, second = greedy(llama[0], tokens, 16)[:, 5:].tolist()
    end = next(one for one in first[3:] if one not in second)
    want = greedy(llama[0], tokens, 16, eos_token_id=end)
    assert want.shape[1] == 21
    assert want[0].eq(end).sum() > 1
    assert torch.equal(generator.generate(tokens, 16, eos_token_id=end), want)


def test_generation_stops_when_all_rows_have_ended(llama, generator):
    tokens = prompt(5, BATCH)
    ends = [int(one) for one in greedy(llama[0], tokens, 4)[:, -1]]
    want = greedy(llama[0], tokens, 16, eos_token_id=ends)
    assert want.shape[1] == 9
    assert torch.equal(generator.generate(tokens, 16, eos_token_id=ends), want)


def test_default_length_fills_the_cache(llama, generator):
    tokens = prompt(40, BATCH)
    assert torch.equal(generator.generate(tokens), greedy(llama[0], tokens, MAX_LENGTH - 40))


def test_tokenizer_output_can_be_unpacked(generator):
    tokens = prompt(5, BATCH)
    encoding = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    got = generator.generate(**encoding, max_new_tokens=3)
    assert torch.equal(got, generator.generate(tokens, 3))


def test_arguments_that_mean_greedy_search_are_accepted(generator):
    tokens = prompt(5, BATCH)
    got = generator.generate(tokens, 3, do_sample=False, num_beams=1, temperature=None)
    assert torch.equal(got, generator.generate(tokens, 3))


def test_stream_yields_tokens_one_by_one(generator):
    complete = generator.generate(prompt(5, BATCH), 6)
    streamed = []
    for new in generator.stream(prompt(5, BATCH), 6):
        streamed.append(new)
        if len(streamed) == 2:
            break
    assert torch.equal(torch.stack(streamed, 1), complete[:, 5:7])


def test_transformers_logits_processor(llama, generator):
    from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

    tokens = prompt(5, BATCH)
    processor = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.5)])
    want = greedy(llama[0], tokens, 16, repetition_penalty=1.5)
    assert not torch.equal(want, greedy(llama[0], tokens, 16))
    assert torch.equal(generator.generate(tokens, 16, logits_processor=processor), want)


@pytest.mark.parametrize("in_list", [True, False], ids=["list", "single"])
@pytest.mark.parametrize(
    "name", ["Epsilon", "Eta", "MinP", "Temperature", "TopH", "TopK", "TopP"], ids=str
)
def test_sampling_warper_raises(generator, name, in_list):
    import transformers

    argument = 2 if name in ("TopK", "Temperature") else 0.5
    warper = getattr(transformers.generation.logits_process, f"{name}LogitsWarper")
    given = warper(float(argument) if name == "Temperature" else argument)
    if in_list:
        given = transformers.LogitsProcessorList([given])
    for call in (generator.generate, generator.stream):
        with pytest.raises(GenerationError, match=f"^{name}LogitsWarper has no effect") as error:
            call(prompt(5, BATCH), 2, logits_processor=given)
        assert f"\n  try   remove {name}LogitsWarper" in str(error.value)


def test_plain_list_of_processors_raises(generator):
    with pytest.raises(GenerationError, match="logits_processor is a list, which cannot be called"):
        generator.generate(prompt(5, BATCH), 2, logits_processor=[lambda tokens, logits: logits])


def test_generate_inside_a_running_event_loop(generator):
    async def notebook():
        return generator.generate(prompt(2, BATCH), 2)

    assert asyncio.run(notebook()).shape == (BATCH, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": prompt(5)}, "a batch of 1, the program was converted for a batch of 2"),
        ({"inputs": prompt(49, BATCH)}, "input_ids has 49 tokens, the cache has 48 places"),
        ({"inputs": prompt(40, BATCH), "max_new_tokens": 9}, "a cache of 48 has 8 places"),
        ({"inputs": prompt(5, BATCH), "max_new_tokens": -1}, "max_new_tokens is -1"),
        ({"inputs": prompt(5, BATCH), "max_new_tokens": 2.5}, "max_new_tokens is 2.5"),
        ({"inputs": prompt(5, BATCH), "attention_mask": "1111"}, "attention_mask is text"),
        ({"inputs": prompt(5, BATCH, 999)}, "the model has the tokens 0 to 255"),
        ({"inputs": torch.randn(2, 5)}, "torch.float32 of shape [2, 5]"),
        ({"inputs": prompt(5, BATCH)[0]}, "torch.int64 of shape [5]"),
        ({}, "the call has 0 inputs, it needs exactly one"),
        ({"inputs": "a prompt"}, "input_ids is text, Generator takes tokens"),
        ({"inputs": ["a prompt", "another"]}, "input_ids is text, Generator takes tokens"),
        ({"inputs": {"input_ids": [[1]]}}, "input_ids is a dict of input_ids"),
        ({"inputs": [[1, 2], [3]]}, "input_ids is a list that torch cannot convert"),
        (
            {"inputs": prompt(5, BATCH), "temperature": 0.7, "do_sample": True},
            "Generator does not support do_sample, temperature; it always takes",
        ),
        ({"inputs": prompt(5, BATCH), "num_beams": 4}, "Generator does not support num_beams"),
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
        "fraction",
        "text mask",
        "token",
        "float",
        "row",
        "none",
        "text",
        "texts",
        "encoding",
        "ragged",
        "sampling",
        "beams",
        "mask",
        "decoder",
    ],
)
def test_unsupported_request_raises_with_a_hint(generator, arguments, message):
    for call in (generator.generate, generator.stream):
        with pytest.raises(GenerationError) as error:
            call(**arguments)
        assert message in str(error.value)
        assert "\n  try   " in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("recognize", [True, False], ids=["recognized", "plain"])
@pytest.mark.parametrize("name", DECODERS)
def test_tokens_equal_transformers(name, recognize, tmp_path):
    model = decoder(name)
    asset = llm.convert(model, 64, recognize=recognize).save_asset(tmp_path / "m.aimodel")
    generator = llm.Generator(asset)
    for length in (1, 2, 5, 20, 32):
        tokens = prompt(length)
        want = greedy(model, tokens, 32)
        assert len(set(want[0, length:].tolist())) > 4
        assert torch.equal(generator.generate(tokens, 32), want), length
