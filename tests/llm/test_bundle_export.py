"""Content of an exported bundle, and the models that `llm.export` rejects."""

from __future__ import annotations

import json

import pytest
import torch
from decoders import SMALL, decoder, prompt
from tiny_tokenizer import END, END_TURN, SPECIAL, TEMPLATE, tiny_tokenizer

from coreai_torch import llm
from coreai_torch.errors import ConversionError, OverwriteError
from coreai_torch.llm.bundle.runtime import BundleRuntime, Sequence
from coreai_torch.llm.bundle.tokenizer_folder import (
    engine_stops,
    extra_stops,
    fold_stops,
    load_tokenizer,
    mid_turn,
)


def test_bundle_contains_the_three_parts(llama_bundle):
    names = sorted(one.name for one in llama_bundle.path.iterdir())
    assert names == ["metadata.json", "tiny_llama.aimodel", "tokenizer"]
    files = {one.name for one in (llama_bundle.path / "tokenizer").iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= files


def test_metadata_follows_schema_0_2(llama_bundle):
    content = json.loads((llama_bundle.path / "metadata.json").read_text())
    language = content["language"]
    assert content["metadata_version"] == "0.2"
    assert content["kind"] == "llm"
    assert content["name"] == "tiny_llama"
    assert content["assets"] == {"main": "tiny_llama.aimodel"}
    assert (language["vocab_size"], language["max_context_length"]) == (256, 2048)
    assert language["function_map"] == {"main": ["main"]}
    assert language["states"] == {"keyCache": "kv_cache", "valueCache": "kv_cache"}
    assert all(isinstance(value, str) for value in content["user_data"].values())


def test_tokenizer_folder_has_template_and_stops(llama_bundle):
    folder = llama_bundle.path / "tokenizer"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["chat_template"] == (folder / "chat_template.jinja").read_text() == TEMPLATE
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    loaded = load_tokenizer(folder)
    assert engine_stops(folder, loaded) == {END, END_TURN}
    conversation = [{"role": "user", "content": "Hello <think>"}]
    for tokenize in (True, False):
        got = loaded.apply_chat_template(conversation, tokenize=tokenize)
        assert got == llama_bundle.tokenizer.apply_chat_template(conversation, tokenize=tokenize)


def test_function_has_the_ports_of_the_engine(llama_bundle):
    ports = BundleRuntime(llama_bundle.path).ports
    assert ports.input_names == ["input_ids", "position_ids"]
    assert ports.state_names == ["keyCache", "valueCache"]
    assert ports.output_names == ["logits"]
    for name in ports.input_names:
        port = ports.input_descriptor(name)
        assert (list(port.shape), str(port.dtype)) == ([1, -1], "int32")
    for name in ports.state_names:
        assert list(ports.state_descriptor(name).shape) == [2, 1, 2, -1, 16]
    logits = ports.output_descriptor("logits")
    assert (list(logits.shape), str(logits.dtype)) == ([1, -1, 256], "float16")


@pytest.mark.parametrize("fill", [0.0, float("nan"), 1e4])
def test_unused_slots_do_not_change_the_logits(llama_bundle, fill):
    runtime = BundleRuntime(llama_bundle.path)
    tokens = prompt(9)[0]
    sequence = Sequence(runtime, runtime.states(16, fill))
    rows = [sequence.append(piece) for piece in (tokens[:5], tokens[5:6], tokens[6:])]
    with torch.no_grad():
        want = llama_bundle.model(tokens[None]).logits[0]
    torch.testing.assert_close(torch.cat(rows).float(), want, rtol=1e-3, atol=5e-3)


def test_stop_rules_of_the_engine():
    config = {
        "additional_special_tokens": ["<a>", {"content": "<b>"}],
        "eos_token": ["<c>", "<d>"],
        "added_tokens_decoder": {
            "1": {"content": "<|im_end|>", "special": True},
            "2": {"content": "<end_of_turn>", "special": False},
            "3": {"content": "<|other|>", "special": True},
        },
        "eot_id": "<e>",
        "end_token": "<f>",
    }
    assert extra_stops(config) == {"<a>", "<b>", "<c>", "<d>", "<|im_end|>", "<e>"}


def test_stops_are_folded_and_markers_removed():
    config = {
        "eos_token": "<eos>",
        "additional_special_tokens": ["<think>", "<|im_start|>"],
        "added_tokens_decoder": {"7": {"content": "<|im_end|>", "special": True}},
        "eot_token": "<think>",
    }
    fold_stops(config, ["<eos>", "<|end|>", "<|im_end|>"], ["<think>"])
    assert extra_stops(config) == {"<|end|>", "<|im_end|>"}
    assert config["eos_token"] == "<eos>"


def test_more_stops_than_keys():
    wanted = [f"<stop{number}>" for number in range(9)]
    config = {}
    fold_stops(config, wanted, [])
    assert extra_stops(config) | {config["eos_token"]} == set(wanted)


def test_tokens_between_prompt_and_answer_are_mid_turn():
    tokenizer = tiny_tokenizer()
    assert mid_turn(tokenizer) == {"<think>"}
    tokenizer.chat_template = TEMPLATE.replace(
        "{{ message.content }}",
        "{% if message.role == 'assistant' %}<|im_start|>{% endif %}{{ message.content }}",
    )
    assert mid_turn(tokenizer) == {"<think>", "<|im_start|>"}
    tokenizer.chat_template = None
    assert mid_turn(tokenizer) == {"<think>"}


def _seq2seq():
    import transformers

    config = transformers.T5Config(vocab_size=256, d_model=16, d_kv=8, d_ff=16, num_layers=1)
    return transformers.T5ForConditionalGeneration(config).eval()


def _recurrent():
    import transformers

    config = transformers.MambaConfig(
        vocab_size=256, hidden_size=16, state_size=4, num_hidden_layers=1, eos_token_id=END
    )
    return transformers.MambaForCausalLM(config).eval()


def _unlimited():
    import transformers

    config = transformers.BloomConfig(
        vocab_size=256, hidden_size=16, n_layer=1, n_head=2, eos_token_id=END
    )
    return transformers.BloomForCausalLM(config).eval()


class _Slow:
    is_fast = False

    def __len__(self):
        return 8


_FOLDER = "not the folder of a model: config.json is missing"


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (_seq2seq, {}, "has an encoder; a bundle contains a decoder only"),
        (_recurrent, {}, "MambaForCausalLM has no attention, but the engine needs keys"),
        (_unlimited, {}, "does not limit the context"),
        (lambda: decoder("llama"), {"tokenizer": None}, "a bundle needs a tokenizer"),
        (lambda: decoder("llama"), {"tokenizer": _Slow()}, "_Slow is not a fast tokenizer"),
        (lambda: decoder("llama", vocab_size=64), {}, "the tokenizer has 101 tokens"),
        (lambda: decoder("llama", eos_token_id=200), {}, "ends at the tokens [200]"),
        (lambda: decoder("llama"), {"max_context_length": 129}, "has 128 positions"),
        (lambda: decoder("llama"), {"max_context_length": 0}, "max_context_length is 0"),
        (lambda: decoder("llama"), {"dtype": "float16"}, "dtype applies to a model"),
        (lambda: decoder("llama"), {"dtype": "int4"}, "unknown dtype 'int4'"),
        (lambda: decoder("llama").train(), {}, "is in training mode"),
        (lambda: torch.nn.Linear(2, 2), {}, "Linear is not a transformers model"),
        (lambda: "missing", {}, _FOLDER),
    ],
)
def test_rejected_model_raises_with_a_hint(tmp_path, model, arguments, message):
    with pytest.raises(ConversionError) as error:
        llm.export(model(), tmp_path / "out", **{"tokenizer": tiny_tokenizer(), **arguments})
    assert message in str(error.value)
    assert "\n  try   " in str(error.value)
    assert not list(tmp_path.iterdir())


def test_output_folder_is_checked_first(tmp_path, llama_bundle):
    with pytest.raises(ConversionError, match="has the suffix of an asset"):
        llm.export("missing", tmp_path / "out.aimodel")
    with pytest.raises(ConversionError, match=r"tiny_llama exists\n  try   pass overwrite=True"):
        llm.export("missing", llama_bundle.path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("text")
    with pytest.raises(ConversionError, match="exists and is not a bundle"):
        llm.export("missing", tmp_path / "notes", overwrite=True)
    (tmp_path / "notes" / "metadata.json").write_text('{"title": "Notes"}')
    with pytest.raises(OverwriteError, match="exists and is not a bundle"):
        llm.export("missing", tmp_path / "notes", overwrite=True)
    assert (tmp_path / "notes" / "a.txt").read_text() == "text"


def test_difference_from_the_model_raises(tmp_path):
    import transformers

    class Wrong(transformers.LlamaForCausalLM):
        def forward(self, *args, past_key_values=None, **kwargs):
            output = super().forward(*args, past_key_values=past_key_values, **kwargs)
            if past_key_values is not None:
                output.logits = 2 * output.logits
            return output

    sizes = {**SMALL, "num_hidden_layers": 1, "eos_token_id": END}
    model = Wrong(transformers.LlamaConfig(**sizes)).eval()
    with pytest.raises(ConversionError, match="computes other logits than the model"):
        llm.export(model, tmp_path / "out", tokenizer=tiny_tokenizer())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_folder_of_a_model_in_other_dtypes(tmp_path):
    source = tmp_path / "Tiny Llama-1"
    decoder("llama", max_position_embeddings=512, eos_token_id=END).save_pretrained(source)
    tiny_tokenizer().save_pretrained(source)
    for dtype in ("bfloat16", "float16"):
        path = llm.export(source, tmp_path / "Tiny-1.5", dtype=dtype, overwrite=True)
        content = json.loads((path / "metadata.json").read_text())
        assert content["name"] == "Tiny_1_5"
        assert content["source"]["hf_model_id"] == "Tiny Llama-1"
        ports = BundleRuntime(path).ports
        assert str(ports.state_descriptor("keyCache").dtype) == dtype
        assert str(ports.output_descriptor("logits").dtype) == "float16"
    assert SPECIAL[1] in (path / "tokenizer" / "tokenizer_config.json").read_text()
