"""Options of the commands: weights, dtypes, metadata, names, verbosity, completion."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.shell import saved
from lazy_import import lazy_import
from torch import nn

from coreai_torch import progress
from coreai_torch.cli import input_spec, model_source, tensors, weights
from coreai_torch.cli.convert import parse_metadata

transformers = lazy_import("transformers")
ROOT = Path(__file__).parents[2]
NET = ("models.py:net", "-i", "x=f32[2,4]")


def state():
    return {"norm.weight": torch.full((4,), 2.0), "norm.bias": torch.full((4,), 3.0)}


@pytest.mark.parametrize("form", ["pt", "nested", "parallel", "safetensors"])
def test_checkpoint_is_loaded_into_the_model(shell, form):
    path = Path("weights.safetensors" if form == "safetensors" else "weights.pt")
    if form == "safetensors":
        tensors.write(path, state())
    else:
        prefixed = {f"module.{name}": value for name, value in state().items()}
        torch.save(
            {"nested": {"state_dict": state()}, "parallel": prefixed}.get(form, state()), path
        )
    loaded = model_source.load("models.py:net", ["x=f32[2,4]"], checkpoint=path)
    assert float(loaded.model_or_exported.norm.bias[0]) == 3.0


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"norm.weigth": torch.ones(4)}, "did you mean 'norm.weight'?"),
        ({**state(), "norm.bias": torch.ones(5)}, "norm.bias has sizes [5], the model's has [4]"),
        ([1, 2], "contains no weights"),
    ],
)
def test_checkpoint_of_another_model_is_rejected(shell, stored, expected):
    torch.save(stored, "weights.pt")
    result = shell("check", *NET, "--checkpoint", "weights.pt", "--json")
    assert result.code == 2
    assert expected in result.json["error"]["message"]
    assert shell("check", *NET, "--checkpoint", "absent.pt").code == 2


@pytest.mark.parametrize("name", ["f16", "float16"])
def test_dtype_converts_model_and_float_inputs(shell, name):
    loaded = model_source.load("models.py:net", ["x=float32[2,4]"], dtype=name)
    assert loaded.model_or_exported.norm.weight.dtype == torch.float16
    assert loaded.args[0].dtype == torch.float16
    ids = model_source.replace(loaded, args=(torch.ones(2, dtype=torch.int64),))
    assert weights.in_dtype(ids, name).args[0].dtype == torch.int64


def test_unknown_dtype_is_rejected_with_the_nearest_one(shell):
    result = shell("check", *NET, "--dtype", "flaot16", "--json")
    assert result.code == 2
    assert "did you mean 'float16'?" in result.json["error"]["message"]
    result = shell("check", "models.py:net", "-i", "x=flaot32[2,4]", "--json")
    assert "did you mean 'float32'?" in result.json["error"]["message"]
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(3),)), "relu.pt2")
    result = shell("check", "relu.pt2", "--dtype", "f16", "--json")
    assert "--dtype is for factories" in result.json["error"]["message"]


@pytest.mark.parametrize(("short", "long"), [("f32", "float32"), ("i64", "int64"), ("b1", "bool")])
def test_inputs_accept_both_names_of_a_dtype(short, long):
    assert input_spec.parse(f"x={long}[2]") == input_spec.parse(f"x={short}[2]")


def test_unknown_input_is_named_with_the_nearest_one(shell):
    result = shell("check", "models.py:net", "-i", "scal=f32[2,4]", "--json")
    assert result.code == 2
    message = result.json["error"]["message"]
    assert "Net.forward has no input 'scal'; it has ['x', 'scale']" in message
    assert "did you mean 'scale'?" in message


def test_only_input_needs_no_name(shell, tmp_path):
    assert model_source.load("models.py:net", ["f32[2,4]"]).args[0].shape == (2, 4)
    result = shell("check", "models.py:net", "-i", "f32[2,4]", "-i", "f32[2,4]", "--json")
    assert (result.code, "several inputs need names" in result.json["error"]["message"]) == (
        2,
        True,
    )
    asset = saved(tmp_path / "relu.aimodel", nn.ReLU(), torch.ones(3), input_names=["given"])
    np.save("other.npy", np.array([-1, 0, 2], np.float32))
    result = shell("run", asset, "other.npy", "-o", "y.npz")
    assert result.code == 0, result.err
    assert np.load("y.npz")["relu"].tolist() == [0, 0, 2]
    result = shell("run", asset, "givne=other.npy", "--json")
    assert (result.code, "did you mean 'given'?" in result.json["error"]["message"]) == (2, True)
    result = shell("run", asset, "other.npy", "-o", "y.mp3", "--json")
    assert (result.code, "y.mp3: supported formats" in result.json["error"]["message"]) == (2, True)


def test_metadata_is_stored(shell):
    from coreai.authoring import AIModelAsset

    result = shell(
        *("convert", "models.py:with_args", "--no-verify", "-o", "net.aimodel", "-q"),
        *("--metadata", "author=Ada", "--metadata", "training=a=b"),
    )
    assert result.code == 0, result.err
    metadata = AIModelAsset.load("net.aimodel").metadata
    assert metadata.author == "Ada"
    assert parse_metadata(["training=a=b"]) == {"training": "a=b"}
    assert shell("convert", *NET, "-o", "n.aimodel", "--metadata", "author").code == 2


def test_convert_accepts_outputs_that_are_not_judged_only_if_asked(shell):
    Path("since.py").write_text(
        "import torch\n"
        "class Since(torch.nn.Module):\n"
        "    def forward(self, t):\n"
        "        return (t - 1.7e9).float()\n"
        "def net():\n"
        "    return Since(), (torch.tensor([1.7e9 + 12.3, 1.7e9 + 99.5], dtype=torch.float64),)\n"
    )
    call = ("convert", "since.py:net", "-o", "since.aimodel", "-q")
    refused = shell(*call)
    assert refused.code == 3
    assert "CAT303" in refused.err
    assert "since.py" in refused.err
    assert not Path("since.aimodel").exists()
    assert shell(*call, "--verify", "accept-unjudged").code == 0
    compared = ("verify", "since.py:net", "since.aimodel", "--mode")
    assert shell(*compared, "quick").code == 1
    assert shell(*compared, "accept-unjudged").code == 0


def test_compress_converts_with_compressed_weights(shell):
    Path("wide.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Linear(64, 64), (torch.ones(1, 64),)\n"
    )
    compress = ("compress", "wide.py:net", "-o", "net.aimodel")
    result = shell(*compress, "--scheme", "int8", "--json")
    assert result.code == 0, result.out + result.err
    assert result.json["weight_bytes"] < result.json["weight_bytes_before"] / 3
    assert [row["scheme"] for row in result.json["weights"]] == ["int8"]
    assert result.json["bytes"] < 64 * 64 * 2
    result = shell(*compress, "--scheme", "int99x", "--json")
    assert (result.code, "unknown scheme 'int99x'" in result.json["error"]["message"]) == (2, True)
    assert shell(*compress).code == 2


@pytest.mark.parametrize(
    "call",
    [
        ("convert", *NET, "-o", "net"),
        ("convert", *NET, "-o", "n.aimodel", "--output-names", "a,b", "--no-verify"),
        ("strip", "models.py"),
        ("compress", *NET, "-o", "net", "--scheme", "int8"),
        ("convert", "net.py", "-o", "n.aimodel"),
        ("generate", "absent"),
        ("unknown",),
        ("check", *NET, "--unknown"),
        ("bench",),
        ("check", "transformers:absent"),
    ],
    ids=" ".join,
)
def test_wrong_calls_exit_with_2(shell, call):
    result = shell(*call, "--json")
    assert result.code == 2, result
    assert set(result.json["error"]) == {"code", "message", "hint", "at"}


def test_generate_is_a_command(shell):
    result = shell("generate", "--help")
    assert (result.code, "coreai-torch generate qwen3_0_6b" in result.out) == (0, True)


def test_folder_of_a_transformers_model_is_a_source(shell, tmp_path):
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    config.intermediate_size = 16
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    loaded = model_source.load("transformers:bert", [])
    assert type(loaded.model_or_exported).__name__ == "BertForMaskedLM"
    assert list(loaded.kwargs) == ["input_ids"]
    given = model_source.load("transformers:bert", ["input_ids=i64[1,4]<50"])
    assert given.args[0].shape == (1, 4)


def test_quiet_and_verbose(shell, monkeypatch):
    seen = []

    def check(*args, **kwargs):
        warnings.warn("careful", UserWarning, stacklevel=1)
        seen.append((progress._quiet, progress.is_verbose()))
        raise ValueError("stop")

    monkeypatch.setattr(model_source, "load", check)
    with warnings.catch_warnings():
        assert "careful" not in shell("check", *NET, "-q").err
        assert "careful" in shell("check", *NET, "-v").err
        assert "careful" not in shell("--quiet", "check", *NET).err
    assert seen == [(True, False), (False, True), (True, False)]


def test_verbose_shows_the_traceback_and_the_output_of_torch(shell):
    plain = shell("convert", "models.py:asks", "-o", "n.aimodel")
    assert plain.code == 3
    assert len(plain.err.splitlines()) <= 8
    assert "models.py" in plain.err
    shown = shell("convert", "models.py:asks", "-o", "n.aimodel", "-v").err
    assert "Traceback" in shown
    assert "torch.ops.aten" in shown


def test_shell_completion_completes_commands():
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_COREAI_TORCH_COMPLETE": "complete_bash",
        "COMP_WORDS": "coreai-torch comp",
        "COMP_CWORD": "1",
    }
    command = [sys.executable, "-m", "coreai_torch.cli"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["compress"], "")


def test_log_lines_of_other_libraries_are_hidden_without_verbose(monkeypatch):
    from coreai_torch.cli.verbosity import silence_libraries

    variables = ("HF_HUB_DISABLE_PROGRESS_BARS", "TRANSFORMERS_VERBOSITY")
    for name in (*variables, "TORCH_LOGS"):
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)
    logger = logging.getLogger("torch.utils._pytree")
    before = logger.level
    try:
        logger.setLevel(logging.NOTSET)
        silence_libraries(["convert", "-v"])
        assert logger.level == logging.NOTSET
        assert not set(variables) & set(os.environ)
        silence_libraries(["convert"])
        assert logger.level == logging.ERROR
        assert set(variables) <= set(os.environ)
    finally:
        logger.setLevel(before)


def test_file_that_is_not_an_asset_is_wrong_usage(shell):
    result = shell("inspect", "models.py", "--json")
    assert (result.code, result.json["error"]["code"]) == (2, "CAT120")


def test_pattern_that_matches_nothing_is_wrong_usage(shell):
    source = ("models.py:with_args", "--scheme", "nrm=int8", "-o", "net.aimodel")
    result = shell("compress", *source, "--json")
    assert (result.code, result.json["error"]["hint"][:10]) == (2, "use 'norm'")


def test_unknown_factory_names_the_nearest_one(shell):
    result = shell("check", "models.py:nett", "--json")
    assert result.json["error"]["message"].endswith("did you mean 'net'?")
    assert result.json["error"]["message"].startswith("models.py has no 'nett'")


def test_verify_reads_images_and_draws_by_rules(shell):
    picture = ["models.py:pictures", "-i", "input=f32[1,3,4,4]"]
    image = ["--image", "input color=BGR mean=0.5 std=0.25"]
    assert shell("convert", *picture, *image, "--no-verify", "-o", "net.aimodel").code == 0
    few = ["--sizes", "0", "--seeds", "1", "--no-edges"]
    assert shell("verify", *picture, "net.aimodel", *few).code == 0
    other = ["--image", "input color=RGB mean=0.5 std=0.25"]
    assert shell("verify", *picture, "net.aimodel", *few, *other).code == 1
    assert shell("verify", *picture, *few, "--draw", "input=sorted").code == 0
    refused = shell("verify", *picture, *few, "--draw", "input=shuffled", "--json")
    assert refused.code == 3
    assert refused.json["error"]["code"] == "CAT302"
    assert shell("verify", *picture, *few, "--draw", "x").code == 2
