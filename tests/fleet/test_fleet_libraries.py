"""Models of transformers, timm and torchvision by name: built, with example inputs, converted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from lazy_import import installed, lazy_import

from coreai_torch.cli.fleet_worker import load
from coreai_torch.errors import PlanError
from coreai_torch.fleet import libraries, parse_plan, read_rows, run

transformers = lazy_import("transformers")
HERE = Path(__file__).parent

_LAYERS = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
_ENCODER = {**_LAYERS, "intermediate_size": 64}
_TEXT = {**_ENCODER, "vocab_size": 99}
_IMAGE = {**_ENCODER, "image_size": 32, "patch_size": 8}
_SPEECH = {
    **{f"{part}_layers": 1 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")},
    **{f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "decoder_start")},
    "d_model": 32,
    "vocab_size": 99,
    "num_mel_bins": 8,
    "max_source_positions": 20,
}
_SOUND = {
    **_TEXT,
    "conv_dim": [8, 8],
    "conv_stride": [20, 16],
    "conv_kernel": [20, 16],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
_T5 = {"num_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2, "d_kv": 16, "vocab_size": 99}


def _loaded(source, **config):
    plan = parse_plan({"models": [{"source": source, "config": config}], "steps": ["convert"]})
    return load(next(plan.tasks()))


@pytest.mark.parametrize(
    ("name", "config", "inputs"),
    [
        ("bert", _TEXT, {"input_ids": (1, 16)}),
        ("BertForMaskedLM", _TEXT, {"input_ids": (1, 16)}),
        ("vit", _IMAGE, {"pixel_values": (1, 3, 32, 32)}),
        ("t5", _T5, {"input_ids": (1, 16), "decoder_input_ids": (1, 16)}),
        ("whisper", _SPEECH, {"input_features": (1, 8, 40), "decoder_input_ids": (1, 16)}),
        ("wav2vec2", _SOUND, {"input_values": (1, 16_000)}),
        (
            "clip",
            {"projection_dim": 16, "text_config": _TEXT, "vision_config": _IMAGE},
            {"input_ids": (1, 16), "pixel_values": (1, 3, 32, 32)},
        ),
    ],
)
def test_transformers_model_runs_on_its_example_inputs(name, config, inputs):
    assert transformers.__name__ == "transformers"
    loaded = _loaded(f"transformers:{name}", **config)
    assert {key: tuple(value.shape) for key, value in loaded.kwargs.items()} == inputs
    with torch.no_grad():
        assert len(loaded.model_or_exported(**loaded.kwargs)) > 0


def test_unknown_name_is_rejected_with_a_similar_one():
    with pytest.raises(PlanError, match="no model 'bret'; did you mean 'bert'"):
        _loaded("transformers:bret")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("no", name="timm"), "timm is not installed.*\n.*pip install timm"),
        (
            ModuleNotFoundError("No module named 'torchvision'", name="torchvision"),
            "timm cannot be imported.*'torchvision'\n.*pip install torchvision",
        ),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            "timm cannot be imported.*nms does not exist\n.*from the same index",
        ),
    ],
)
def test_library_that_cannot_be_imported_is_rejected_with_a_hint(monkeypatch, error, message):
    def fail(name):
        raise error

    monkeypatch.setattr(libraries.importlib, "import_module", fail)
    with pytest.raises(PlanError, match=message):
        libraries.build("timm", "resnet18", {})


def _has_libraries():
    folder = Path(sys.prefix) / "torchvision"  # see fleet_torchvision.py
    return installed("timm") and (folder.is_dir() or installed("torchvision"))


@pytest.mark.slow
@pytest.mark.skipif(not _has_libraries(), reason="timm or torchvision is missing")
def test_plan_with_each_library_is_converted_and_verified(tmp_path):
    models = [
        {"source": "timm:resnet10t", "config": {"num_classes": 7}},
        {"source": "torchvision:squeezenet1_1", "config": {"num_classes": 7}},
        {"source": "torchvision:fcn_resnet50", "inputs": ["x=f32[1,3,32,32]"]},
        {"source": "timm:resnet11"},
    ]
    plan = {"models": models, "steps": ["convert", "verify"], "preload": ["fleet_torchvision"]}
    run(parse_plan(plan, folder=HERE), tmp_path / "vision")
    rows = {row["id"]: row for row in read_rows(tmp_path / "vision")}
    causes = {name: (row["verdict"], row["cause"]) for name, row in rows.items()}
    assert causes.pop("timm:resnet11")[0] == "error"
    assert set(causes.values()) == {("pass", "")}, causes
    assert all(0 <= row["max_error"] < 1e-3 for name, row in rows.items() if name in causes)
    text = {"source": "transformers:bert", "config": _TEXT}
    plan = parse_plan({"models": [text], "steps": ["convert", "verify"]}, folder=HERE)
    assert run(plan, tmp_path / "text").ok
