"""The commands `coreai-torch llm export | generate | chat | bench`."""

from __future__ import annotations

import io
import json

import pytest
from decoders import decoder
from tiny_tokenizer import END, tiny_tokenizer

from coreai_torch import llm
from coreai_torch.cli import main


@pytest.fixture
def run(capsys):
    def command(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(["llm", *map(str, arguments)])
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return command


def test_generate_prints_the_text(run, llama_bundle, tmp_path):
    want = llm.load(llama_bundle.path).generate("Hello", 12, temperature=1.0, seed=3)
    options = ["-n", 12, "--temperature", 1, "--seed", 3]
    code, out, _ = run("generate", llama_bundle.path, "Hello", *options)
    assert (code, out) == (0, want + "\n")
    (tmp_path / "prompt.txt").write_text("Hello")
    code, out, _ = run(
        "generate", llama_bundle.path, "--file", tmp_path / "prompt.txt", *options, "--json"
    )
    assert json.loads(out) == {"ok": True, "prompt": "Hello", "text": want}


def test_chat_answers_each_line(run, llama_bundle, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nMore\n\nnever read\n"))
    code, out, _ = run("chat", llama_bundle.path, "--system", "Be brief", "-n", 8, "--json")
    messages = json.loads(out)["messages"]
    assert code == 0
    assert [one["role"] for one in messages] == ["system", *["user", "assistant"] * 2]
    model = llm.load(llama_bundle.path)
    assert messages[2]["content"] == model.chat(messages[:2], 8)
    assert messages[4]["content"] == model.chat(messages[:4], 8)


def test_chat_obeys_commands(run, llama_bundle, monkeypatch):
    lines = "Hi\n/help\n/nothing\n/reset\n//More\n/exit\nnever read\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    code, out, _ = run("chat", llama_bundle.path, "--system", "Be brief", "-n", 2, "--json")
    messages = json.loads(out)["messages"]
    assert code == 0
    assert [one["role"] for one in messages] == ["system", "user", "assistant"]
    assert messages[1]["content"] == "/More"
    monkeypatch.setattr("sys.stdin", io.StringIO("/help\n/nothing\n/reset\n/quit\n"))
    code, out, _ = run("chat", llama_bundle.path)
    assert "/reset forgets the conversation" in out
    assert "/nothing is an unknown command" in out
    assert "the conversation starts again" in out


def test_bench_measures_prompt_and_decoding(run, llama_bundle):
    sizes = ["--prompt", 8, "--tokens", 3, "--trials", 2]
    code, out, _ = run("bench", llama_bundle.path, *sizes, "--json")
    result = json.loads(out)
    assert code == 0
    assert result["prompt_tokens_per_s"] > 0
    assert result["decode_ms"] > 0
    code, out, _ = run("bench", llama_bundle.path, *sizes)
    assert "tokens/s  (8 tokens)" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["generate", "BUNDLE"], 2, "pass a prompt or --file"),
        (["generate", "missing", "Hello"], 3, "is not a bundle: metadata.json is missing"),
        (["bench", "BUNDLE", "--prompt", "4000"], 3, "exceed the context of 2048"),
        (["export", "missing", "-o", "OUT"], 3, "config.json is missing"),
        (["check", "missing"], 3, "no bundle was found at missing"),
    ],
)
def test_wrong_arguments_set_the_exit_code(run, llama_bundle, tmp_path, arguments, code, message):
    places = {"BUNDLE": llama_bundle.path, "OUT": tmp_path / "out"}
    got, out, err = run(*(places.get(one, one) for one in arguments))
    assert got == code
    assert message in out + err


@pytest.mark.slow
def test_export_of_a_folder(run, tmp_path):
    source = tmp_path / "source"
    decoder("llama", num_hidden_layers=1, eos_token_id=END).save_pretrained(source)
    tiny_tokenizer().save_pretrained(source)
    code, out, _ = run("export", source, "-o", tmp_path / "bundle", "--json")
    assert code == 0
    assert json.loads(out)["verified"] is True
    assert (tmp_path / "bundle" / "bundle.aimodel").is_dir()
    code, _, err = run("export", source, "-o", tmp_path / "bundle")
    assert code == 3
    assert "overwrite" in err
