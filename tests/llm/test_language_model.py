"""`llm.load`: tokens equal transformers' `generate`; text, streams, chat and prompt caches."""

from __future__ import annotations

import pytest
import torch
from decoders import prompt
from lazy_import import lazy_import
from tiny_tokenizer import END

from coreai_torch import llm
from coreai_torch.errors import GenerationError
from coreai_torch.llm.bundle.prompts import cut_at
from coreai_torch.llm.bundle.streaming import before_stop

unpadded = lazy_import("coreai_torch.llm.bundle.decoder", "unpadded")  # imports transformers


@pytest.fixture(scope="module")
def model(llama_bundle):
    return llm.load(llama_bundle.path)


def _want(bundle, tokens, count, seed=None, mask=None, **options):
    """Return the tokens of transformers with the same arguments."""
    if seed is not None:
        torch.manual_seed(seed)
    mask = torch.ones_like(tokens) if mask is None else mask
    return bundle.model.generate(tokens, attention_mask=mask, max_new_tokens=count, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_sample": True, "seed": 0},
        {"temperature": 0.7, "do_sample": True, "seed": 1},
        {"top_k": 12, "do_sample": True, "seed": 2},
        {"top_p": 0.8, "do_sample": True, "seed": 3},
        {"min_p": 0.05, "do_sample": True, "seed": 4},
        {"repetition_penalty": 1.4},
        {
            "temperature": 1.3,
            "top_k": 40,
            "top_p": 0.95,
            "repetition_penalty": 1.2,
            "do_sample": True,
            "seed": 5,
        },
        {"do_sample": True, "num_return_sequences": 3, "seed": 6},
        {"num_beams": 3, "num_return_sequences": 2},
        {"no_repeat_ngram_size": 2},
        {"eos_token_id": [5, 17, 80]},
    ],
    ids=lambda options: "-".join(options) or "default",
)
def test_tokens_equal_transformers(llama_bundle, model, options):
    tokens = prompt(7, vocabulary=95)
    want = _want(llama_bundle, tokens, 16, **options)
    assert torch.equal(model.generate(tokens, 16, **options), want)


def test_sampling_argument_implies_sampling(model):
    tokens = prompt(7, vocabulary=95)
    want = model.generate(tokens, 12, temperature=1.5, do_sample=True, seed=3)
    assert torch.equal(model.generate(tokens, 12, temperature=1.5, seed=3), want)
    greedy = model.generate(tokens, 12)
    assert not torch.equal(want, greedy)
    assert torch.equal(model.generate(tokens, 12, temperature=0), greedy)


def test_seed_does_not_change_the_global_generator(model):
    torch.manual_seed(7)
    want = torch.rand(1)
    torch.manual_seed(7)
    model.generate("a", 2, temperature=1.0, seed=1)
    assert torch.equal(torch.rand(1), want)


def test_prompts_of_different_lengths_equal_transformers(llama_bundle, model):
    rows = [prompt(length, vocabulary=95)[0].tolist() for length in (3, 11, 6)]
    ids = torch.tensor([[0] * (11 - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (11 - len(row)) + [1] * len(row) for row in rows])
    for options in ({}, {"do_sample": True, "top_k": 9, "seed": 4}):
        want = _want(llama_bundle, ids, 12, mask=mask, pad_token_id=0, **options)
        got = model.generate(rows, 12, pad_token_id=0, **options)
        assert torch.equal(got[:, 11:], want[:, 11:])
    encoding = {"input_ids": ids, "attention_mask": mask}
    assert torch.equal(model.generate(encoding, 12, pad_token_id=0, **options), got)


def test_text_prompt_returns_new_text(llama_bundle, model):
    text = model.generate("Hello", 12)
    ids = torch.tensor([llama_bundle.tokenizer("Hello").input_ids])
    want = _want(llama_bundle, ids, 12)[0, 5:]
    assert text == llama_bundle.tokenizer.decode(want, skip_special_tokens=True)
    assert model.generate(["Hello", "Hi"], 12)[0] == text
    several = model.generate(["Hello", "Hi"], 6, temperature=1.0, num_return_sequences=2, seed=0)
    assert [len(one) for one in several] == [2, 2]


def test_stream_yields_the_text_of_generate(model):
    options = {"temperature": 1.0, "seed": 2}
    assert "".join(model.stream("Tell me", 24, **options)) == model.generate(
        "Tell me", 24, **options
    )
    assert "".join(model.stream_chat("Tell me", 24)) == model.chat("Tell me", 24)


def test_stream_can_be_abandoned_and_raises_errors(model):
    for _ in model.stream("a b c", 200, temperature=2.0, seed=1):
        break
    assert model.generate("a b c", 4) == "".join(model.stream("a b c", 4))

    def fail(tokens, scores):
        raise ArithmeticError("processor failed")

    with pytest.raises(ArithmeticError, match="processor failed"):
        list(model.stream("a", 4, logits_processor=[fail]))
    with pytest.raises(GenerationError, match="stream takes one prompt"):
        model.stream(["a", "b"], 4)


def test_stream_takes_stopping_criteria(model):
    def after_two(tokens, scores, **_):
        return torch.full((len(tokens),), tokens.shape[1] >= len("Hello") + 2)

    text = "".join(model.stream("Hello", 20, stopping_criteria=[after_two]))
    assert text == model.generate("Hello", 2)


@pytest.mark.parametrize("name", ["top_p", "min_p"])
def test_probability_above_one_is_rejected(model, name):
    with pytest.raises(GenerationError, match=f"{name} is 2.0, which is not a probability"):
        model.generate("Hello", 4, **{name: 2.0})


def test_stop_text_ends_generation(model):
    text = model.generate("Hello", 20)
    stop = text[4:6]
    assert model.generate("Hello", 20, stop=stop) == text[: text.index(stop)]
    assert "".join(model.stream("Hello", 20, stop=[stop, "no such"])) == text[: text.index(stop)]


@pytest.mark.parametrize(
    ("pieces", "stop", "want"),
    [
        (["a", "bc", "d"], ["bcd"], "a"),
        (["a", "bc", "e"], ["bcd"], "abce"),
        (["ab"], [], "ab"),
        (["xx", "END", "yy"], ["END", "yy"], "xx"),
        (["a", "b"], ["abc"], "ab"),
    ],
)
def test_stream_holds_back_the_start_of_a_stop_text(pieces, stop, want):
    assert "".join(before_stop(pieces, stop)) == want
    assert cut_at("".join(pieces), stop) == want


def test_chat_uses_the_template_and_reuses_the_cache(llama_bundle, model):
    messages = [{"role": "user", "content": "Who are you?"}]
    answer = model.chat(messages, 8)
    ids = llama_bundle.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    want = _want(llama_bundle, torch.tensor([ids]), 8)[0, len(ids) :]
    assert answer == llama_bundle.tokenizer.decode(want, skip_special_tokens=True)
    assert model.chat("Who are you?", 8) == answer
    assert model.reused_tokens == len(ids) - 1
    messages += [{"role": "assistant", "content": "A model."}, {"role": "user", "content": "Go on"}]
    continued = model.chat(messages, 8)
    assert model.reused_tokens >= len(ids) - 1
    assert llm.load(llama_bundle.path).chat(messages, 8) == continued


def test_prompt_cache_on_disk(llama_bundle, model, tmp_path):
    path = tmp_path / "cache" / "prompt.safetensors"
    text = "A long instruction that never changes. "
    want = model.generate(text + "Go.", 10)
    model.save_prompt_cache(text, path)
    fresh = llm.load(llama_bundle.path)
    assert fresh.load_prompt_cache(path) == len(text)
    assert fresh.generate(text + "Go.", 10) == want
    assert fresh.reused_tokens == len(text)
    other = tmp_path / "other.safetensors"
    assert llm.load(llama_bundle.path).generate(text, 10, prompt_cache=other) == model.generate(
        text, 10
    )
    fresh = llm.load(llama_bundle.path)
    assert fresh.generate(text, 10, prompt_cache=other) == model.generate(text, 10)
    assert fresh.reused_tokens == len(text) - 1


def test_prompt_cache_of_another_bundle_is_rejected(model, tmp_path, monkeypatch):
    from coreai_torch.llm.bundle import prompt_cache

    path = tmp_path / "prompt.safetensors"
    model.save_prompt_cache("Hello", path)
    monkeypatch.setattr(prompt_cache, "fingerprint", lambda runtime: "other")
    with pytest.raises(GenerationError, match="belongs to another bundle"):
        model.load_prompt_cache(path)
    path.write_bytes(b"text")
    with pytest.raises(GenerationError, match="is not a prompt cache"):
        model.load_prompt_cache(path)
    with pytest.raises(GenerationError, match="no prompt cache was found"):
        model.load_prompt_cache(tmp_path / "none")
    with pytest.raises(GenerationError, match="prompt_cache is given for 2 prompts"):
        model.generate(["a", "b"], 2, prompt_cache=tmp_path / "x")


def test_logits_of_all_positions(llama_bundle, model):
    tokens = prompt(40)
    with torch.no_grad():
        want = llama_bundle.model(tokens).logits[0]
    torch.testing.assert_close(model.logits(tokens), want, rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": ""}, "a prompt is empty"),
        ({"prompt": []}, "a prompt is empty"),
        ({"prompt": torch.ones(2)}, "torch.float32 tensor of shape [2]"),
        ({"prompt": object()}, "the prompt is a object"),
        ({"prompt": {"a": [1]}}, "the prompt is a dictionary of a"),
        ({"prompt": [[1, 300]]}, "the model has the tokens 0 to 255"),
        ({"prompt": [1] * 2049}, "the prompt has 2049 tokens"),
        ({"prompt": "a", "max_new_tokens": 2048}, "a context of 2048 has 2047 left"),
        ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"prompt": "a", "use_cache": False}, "a bundle does not support use_cache"),
        ({"prompt": "a", "temprature": 1.0}, "transformers rejects the request"),
        ({"prompt": "a", "temperature": -1.0}, "transformers rejects the request"),
    ],
)
def test_wrong_request_raises_with_a_hint(model, arguments, message):
    with pytest.raises(GenerationError) as error:
        model.generate(**{"max_new_tokens": 2, **arguments})
    assert message in str(error.value)
    assert "\n  try   " in str(error.value)


def test_chat_without_template_raises(llama_bundle):
    model = llm.load(llama_bundle.path)
    model.tokenizer.chat_template = None
    with pytest.raises(GenerationError, match="has no chat template"):
        model.chat("Hello")


def test_padding_on_the_right_is_rejected():
    tokens = torch.tensor([[1, 2, 0]])
    assert unpadded(tokens, torch.tensor([[0, 1, 1]])) == [[2, 0]]
    for mask in ([[1, 1, 0]], [[1, 0, 1]]):
        with pytest.raises(GenerationError, match="pad prompts on the left"):
            unpadded(tokens, torch.tensor(mask))


def test_default_length_ends_with_the_context(llama_bundle, model):
    tokens = prompt(2046, vocabulary=95)
    got = model.generate(tokens, eos_token_id=END)
    assert 2047 <= got.shape[1] <= 2048


def test_folder_without_bundle_raises(tmp_path):
    with pytest.raises(GenerationError, match=r"is not a bundle: metadata.json is missing"):
        llm.load(tmp_path)
