"""Requests and files that users get wrong: each is rejected with a sentence, or has its effect."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from decoders import decoder, prompt
from safetensors.torch import load_file, save_file
from tiny_tokenizer import END, tiny_tokenizer

from coreai_torch import llm
from coreai_torch.errors import ConversionError, GenerationError


@pytest.fixture(scope="module")
def model(llama_bundle):
    return llm.load(llama_bundle.path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": [[1.7, 2.9]]}, "the prompt is a torch.float32 tensor"),
        ({"prompt": torch.ones(1, 3, dtype=torch.bool)}, "the prompt is a torch.bool tensor"),
        ({"prompt": ["a", 3]}, "the prompt is a list of text and int"),
        ({"prompt": [["a", "b"]]}, "the prompt is a list"),
        ({"top_p": "a"}, "top_p is 'a', which is not a probability"),
        ({"seed": 1.5, "temperature": 1.0}, "seed is 1.5, not an integer"),
        ({"stop": 3}, "stop is 3, not text"),
        ({"stop": [3]}, r"stop is \[3\], not text"),
        ({"num_return_sequences": 0}, "num_return_sequences is 0, not a positive integer"),
        ({"num_beams": 0}, "num_beams is 0, not a positive integer"),
        ({"max_new_tokens": True}, "max_new_tokens is True"),
        ({"max_new_tokens": None, "max_length": "x"}, "max_length is 'x', not a number"),
        ({"return_dict_in_generate": True}, "the call returns text"),
        ({"output_attentions": True}, "does not support output_attentions"),
        ({"guidance_scale": 2.0}, "does not support guidance_scale"),
        ({"penalty_alpha": 0.5, "top_k": 4}, "does not support penalty_alpha"),
        ({"num_beam_groups": 2}, "does not support num_beam_groups"),
        ({"stop_strings": ["a"]}, "try   pass stop=..."),
        ({"attention_mask": torch.ones(1, 1)}, "the tokenizer's dictionary, as prompt"),
    ],
)
def test_wrong_request_is_rejected(model, options, message):
    with pytest.raises(GenerationError, match=message):
        model.generate(**{"prompt": "a", "max_new_tokens": 2, **options})


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        (None, {}, "the messages are not a list of dictionaries"),
        ([], {}, "the messages are not a list of dictionaries"),
        (["Hello"], {}, "the messages are not a list of dictionaries"),
        ({"role": "user", "content": "a"}, {}, "the messages are not a list of dictionaries"),
        ([{"rol": "user", "content": "a"}], {}, "the messages are not a list of dictionaries"),
        ("a", {"tools": 3}, "rejects the conversation"),
        ("a", {"chat_template_kwargs": 3}, "chat_template_kwargs is a int"),
        ("a", {"num_return_sequences": 2, "temperature": 1.0}, "chat returns one continuation"),
    ],
)
def test_wrong_conversation_is_rejected(model, messages, options, message):
    with pytest.raises(GenerationError, match=message):
        model.chat(messages, 2, **options)


def test_max_length_counts_the_prompt(llama_bundle, model):
    tokens = prompt(9, vocabulary=95)
    want = llama_bundle.model.generate(tokens, max_length=14, do_sample=False)
    assert torch.equal(model.generate(tokens, max_length=14), want)
    config = llama_bundle.model.generation_config.__class__(max_new_tokens=4, eos_token_id=END)
    assert model.generate(tokens, generation_config=config).shape[1] <= 13


def test_empty_stop_text_has_no_effect(model):
    want = model.generate("Hello", 6)
    assert model.generate("Hello", 6, stop=[""]) == want
    assert model.generate("Hello", 6, stop=None) == want
    assert "".join(model.stream("Hello", 6, stop=None)) == want


def test_mask_of_bool_hides_padding(model):
    padded = {
        "input_ids": torch.tensor([[0, 0, 5, 6]]),
        "attention_mask": torch.tensor([[False, False, True, True]]),
    }
    assert torch.equal(model.generate(padded, 3), model.generate([[5, 6]], 3))


def test_one_prompt_is_needed_for_a_cache_and_for_logits(model, tmp_path):
    with pytest.raises(GenerationError, match="save_prompt_cache takes one prompt, not 2"):
        model.save_prompt_cache(["a", "b"], tmp_path / "x")
    with pytest.raises(GenerationError, match="logits takes one prompt, not 2"):
        model.logits(["a", "b"])
    with pytest.raises(GenerationError, match="is a folder"):
        model.save_prompt_cache("a", tmp_path)


def test_unknown_engine_and_device_are_rejected(llama_bundle):
    with pytest.raises(GenerationError, match="torch cannot use the device 'nothing'"):
        llm.load(llama_bundle.path, engine="torch", device="nothing")
    with pytest.raises(GenerationError, match="unknown engine 'gpu'"):
        llm.check(llama_bundle.path, engine="gpu")
    with pytest.raises(ConversionError, match="int is not a transformers model"):
        llm.check(llama_bundle.path, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders") / "llama"
    decoder("llama", eos_token_id=END).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def _copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def test_missing_weights_are_rejected(folder, tmp_path):
    broken = _copy(folder, tmp_path)
    weights = load_file(broken / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConversionError, match=r"lacks 1 weights .*layers.1.mlp.up_proj.weight"):
        llm.export(broken, tmp_path / "bundle")


def test_weights_that_are_not_finite_are_named(folder, tmp_path):
    broken = _copy(folder, tmp_path)
    weights = load_file(broken / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][0] = float("nan")
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConversionError, match="itself computes logits that are not finite"):
        llm.export(broken, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "unheard_of"}'),
        ("model.safetensors", b"no weights"),
    ],
)
def test_damaged_folder_is_rejected(folder, tmp_path, name, content):
    broken = _copy(folder, tmp_path)
    (broken / name).write_bytes(content)
    with pytest.raises(ConversionError, match="transformers cannot load the model in"):
        llm.export(broken, tmp_path / "bundle")
    with pytest.raises(ConversionError, match="transformers cannot load the model in"):
        llm.check(tmp_path, broken)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": 3}, "tokenizer is a int"),
        ({"tokenizer": "no such folder"}, "the folder does not exist"),
        ({"name": 3}, "name is 3, not text"),
        ({"max_context_length": True}, "max_context_length is True"),
    ],
)
def test_wrong_export_is_rejected(folder, tmp_path, options, message):
    with pytest.raises(ConversionError, match=message):
        llm.export(folder, tmp_path / "bundle", **options)


def test_output_that_cannot_be_created_is_rejected(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConversionError, match="cannot be created"):
        llm.export(folder, tmp_path / "file" / "bundle")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("quantization_config: 3", "quantization_config is 3, not a mapping"),
        ('quantization_config: {module_name_configs: {"(": null}}', "not a regular expression"),
        ("quantization_config: {global_config: 4}", "is 4, not a mapping"),
        (
            "quantization_config: {module_name_configs: "
            '{"nothing": {op_state_spec: {weight: {dtype: int4}}}}}',
            "compresses no weight of LlamaForCausalLM",
        ),
    ],
)
def test_recipe_without_effect_is_rejected(folder, tmp_path, content, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(ConversionError, match=message):
        llm.export(folder, tmp_path / "bundle", compression=path)


def test_recipe_is_repeated_by_check_and_evaluation(folder, tmp_path):
    path, text = tmp_path / "recipe.yaml", tmp_path / "text.txt"
    weight = {"dtype": "int4", "granularity": {"type": "per_block", "block_size": 16, "axis": 1}}
    layers = {"global_config": {"op_state_spec": {"weight": weight}}}
    path.write_text(json.dumps({"quantization_config": layers}))
    text.write_text("the cat sat on the mat. " * 4)
    llm.export(folder, tmp_path / "bundle", compression=path)
    path.unlink()
    report = llm.check(tmp_path / "bundle", folder)
    assert report.ok
    assert "equal transformers" in report.steps[3].detail
    scores = llm.evaluate(tmp_path / "bundle", text=text, model=folder, window=32)
    assert list(scores.differences()) == ["conversion", "compression"]
    assert abs(scores.differences()["conversion"]["perplexity"]) < 1


def test_context_of_one_token(folder, tmp_path):
    llm.export(folder, tmp_path / "bundle", max_context_length=1)
    report = llm.check(tmp_path / "bundle", folder)
    assert report.ok, str(report)
    with pytest.raises(GenerationError, match="a context of 1 has 0 left"):
        llm.load(tmp_path / "bundle").generate("a")
