"""`coreai-torch compress`: schemes per layer, YAML files, calibration data and targets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer

from coreai_torch.cli.compress import parse_bytes

MODEL = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    model = nn.Sequential()
    for name in ("a", "b", "head"):
        model.add_module(name, nn.Linear(64, 64))
    return model, (torch.ones(4, 64),)
"""


@pytest.fixture
def compress(shell):
    Path("wide.py").write_text(MODEL)
    draw = np.random.default_rng(0)
    np.savez("data.npz", input=draw.standard_normal((3, 4, 64), dtype=np.float32))
    return lambda *more: shell("compress", "wide.py:net", "-o", "n.aimodel", "--json", *more)


def schemes(result):
    assert result.code == 0, result.out + result.err
    return [row["scheme"] for row in result.json["weights"]]


def test_scheme_per_layer(compress):
    result = compress("--scheme", "[ab]=int4/32", "--scheme", "head=int8", "--skip", "b")
    assert schemes(result) == ["int4", None, "int8"]
    Path("recipe.yaml").write_text(
        json.dumps(
            {
                "quantization_config": {
                    "global_config": {"op_state_spec": {"weight": {"dtype": "int8"}}},
                    "module_name_configs": {"head": None},
                }
            }
        )
    )
    result = compress("--config", "recipe.yaml", "--no-verify")
    assert schemes(result) == ["int8", "int8", None]


def test_calibration_data(compress):
    more = ("--method", "gptq", "--activations", "int8", "--calibration", "data.npz")
    result = compress("--scheme", "int4", "--only", "a", "--no-verify", *more)
    assert schemes(result) == ["int4", None, None]
    assert result.json["weights"][0]["inputs"] == "int8"
    assert 0 < result.json["weights"][0]["output_error"] < 0.1


def test_targets(compress):
    more = ("--calibration", "data.npz", "--sensitivity", "table.json", "--no-verify")
    candidates = ("--scheme", "int8", "--scheme", "int4/32")
    result = compress("--target-bytes", "19k", *candidates, *more)
    assert result.code == 0, result.out + result.err
    assert result.json["bytes"] <= 19 << 10
    assert 0 < result.json["model_error"] < 0.2
    assert Path("table.json").is_file()
    result = compress("--max-error", "0.02", *candidates, *more)
    assert result.json["model_error"] <= 0.02
    assert result.json["weight_bytes"] < result.json["weight_bytes_before"] / 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no scheme is given"),
        (("--scheme", "int8", "--scheme", "int4"), "several schemes need patterns"),
        (("--scheme", "a=int8", "--max-error", "0.1"), "schemes are candidates"),
        (("--scheme", "int8", "--config", "c.yaml"), "--config has the schemes"),
        (("--target-bytes", "many"), "is not a size"),
        (("--scheme", "head=int99"), "unknown scheme 'int99'"),
    ],
)
def test_wrong_usage_exits_with_2(compress, options, message):
    result = compress(*options)
    assert (result.code, message in result.json["error"]["message"]) == (2, True)


def test_unknown_pattern_names_the_nearest_layer(compress):
    result = compress("--scheme", "haed=int8")
    assert result.code == 2
    assert "'head'" in result.json["error"]["hint"]


def test_sizes():
    assert [parse_bytes(t) for t in ("500", "20MB", "1.5 GB", "3k")] == [
        500,
        20 << 20,
        3 << 29,
        3 << 10,
    ]
    with pytest.raises(typer.BadParameter):
        parse_bytes("-3MB")
