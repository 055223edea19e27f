"""Errors of users: wrong files, failing factories, invalid inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from cli.shell import saved
from torch import nn

from coreai_torch.cli import main

FACTORIES = """
import os, sys
import torch
from torch import nn

def raises():
    raise KeyError("abc")

def leaves():
    sys.exit(0)

def needs(width):
    return nn.Linear(width, width)

def row():
    return nn.ReLU(), torch.ones(2, 4)

def many():
    return nn.ReLU(), (torch.ones(2),), {}, 5

def nothing():
    return ()

def printing():
    print("from Python")
    os.write(1, b"from below\\n")
    return nn.ReLU(), (torch.ones(2),)

class Leaves(nn.Module):
    def forward(self, x):
        sys.exit(0)

HELD = nn.ReLU()
"""


@pytest.fixture
def factories(tmp_path):
    (tmp_path / "made.py").write_text(FACTORIES)
    (tmp_path / "broken.py").write_text("def f(:")
    (tmp_path / "lacks.py").write_text("import no_such_package")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "code", "expected"),
    [
        ("made.py:raises", 3, "made.py:raises raised KeyError: 'abc'"),
        ("made.py:leaves", 3, "made.py:leaves called sys.exit(0)"),
        ("made.py:needs", 2, "needs(width): missing a required argument: 'width'"),
        ("made.py:row", 2, "returned a model and Tensor; after the model comes a tuple"),
        ("made.py:many", 2, "returned a model and tuple, dict, int"),
        ("made.py:nothing", 2, "returned a tuple; a factory returns an nn.Module"),
        ("made.py:HELD", 2, "ReLU.forward(input: torch.Tensor)"),
        ("broken.py:f", 3, "broken.py raised SyntaxError: invalid syntax"),
        ("lacks.py:f", 3, "lacks.py raised ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_failing_factory_is_reported_with_its_line(shell, factories, source, code, expected):
    result = shell("check", source, "--json")
    assert result.code == code, result
    assert expected in result.json["error"]["message"]
    assert result.json["error"]["code"] == ("CAT112" if code == 3 else "usage")
    if source == "made.py:raises":
        assert 'made.py", line 7' in result.json["error"]["at"]


def test_sys_exit_in_model_is_an_error(shell, factories):
    result = shell("check", "made.py:Leaves", "-i", "x=f32[2]", "--json")
    assert (result.code, result.json["error"]["code"]) == (3, "CAT112")


def test_output_of_model_is_not_in_json(factories, monkeypatch, capfd):
    monkeypatch.chdir(factories)
    with pytest.raises(SystemExit) as exit_info:
        main(["check", "made.py:printing", "--json"])
    result = capfd.readouterr()
    assert (exit_info.value.code, json.loads(result.out)["ok"]) == (0, True)
    assert "from Python" in result.err
    assert "from below" in result.err


def test_unexpected_error_is_json_and_exits_with_3(shell, monkeypatch):
    from coreai_torch import converter

    def fails(*args, **kwargs):
        raise AssertionError("inside")

    monkeypatch.setattr(converter.TorchConverter, "blockers", fails)
    result = shell("check", "models.py:with_args", "--json")
    assert (result.code, result.json["error"]["code"]) == (3, "CAT100")
    assert "AssertionError: inside" in result.json["error"]["message"]
    assert "Traceback" in result.err


@pytest.mark.parametrize("kind", ["empty", "text", "weights", "truncated"])
def test_pt2_without_program_is_rejected(shell, tmp_path, kind):
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(3),)), path)
    stored = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"text"}.get(kind, stored[: len(stored) // 2]))
    if kind == "weights":
        torch.save(nn.Linear(2, 2).state_dict(), path)
    result = shell("check", path, "--json")
    assert result.code == 2
    assert "is not an exported program that this torch can read" in result.json["error"]["message"]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (["x=f32[2,4]", "x=f32[3,4]"], "the input 'x' is given more than once"),
        (["x=f32[2,,4]"], "'' is not a size"),
        (["x=f32[2,4]<3"], "<3 is for integers"),
        (["x=i8[2,4]<1000"], "<1000 is not between 1 and 128"),
        (["x=i64[2]<0"], "<0 is not between 1"),
        (["x=f32[n:2:9..3,4]"], "the example 2 is not between 9 and 3"),
        (["x=f32[2:1..3,4]"], "a dynamic size needs a name"),
        (["x=f32[99999999999999999999]"], "cannot create 'x' with sizes [99999999999999999999]"),
        (["x=@empty.npy"], "cannot read empty.npy: EOFError"),
        (["x=@text.npz"], "cannot read text.npz: ValueError"),
        (["x=@empty.safetensors"], "cannot read empty.safetensors: error: unpack requires"),
        (["x=@two.npz"], "two.npz contains ['a', 'b'], not 'x'"),
    ],
)
def test_invalid_inputs_are_rejected(shell, tmp_path, inputs, expected):
    for name in ("empty.npy", "text.npz", "empty.safetensors"):
        (tmp_path / name).write_bytes(b"text" if name.startswith("text") else b"")
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))
    given = [word for text in inputs for word in ("-i", text)]
    result = shell("check", "models.py:net", *given, "--json")
    assert result.code == 2, result
    assert expected in " ".join(result.json["error"]["message"].split())


class Takes(nn.Module):
    def forward(self, number, ids):
        return number * 2, ids + 1


@pytest.fixture(scope="module")
def asset(tmp_path_factory):
    path = tmp_path_factory.mktemp("assets") / "takes.aimodel"
    return saved(path, Takes(), torch.tensor(2.0), torch.ones(2, dtype=torch.int32))


def test_run_accepts_rank_0_and_other_byte_order(shell, asset, tmp_path):
    np.save(tmp_path / "number.npy", np.array(3.0, ">f4"))
    np.save(tmp_path / "ids.npy", np.array([1, 2]))
    result = shell("run", asset, "number=number.npy", "ids=ids.npy", "-o", "y.npz")
    assert result.code == 0, result.err
    assert np.load("y.npz")["mul"] == 6


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array([2**40, 1]), "contains numbers that do not fit into torch.int32"),
        (np.array([1.5, 1]), "contains torch.float64, which cannot be cast to torch.int32"),
        (np.array([1, 2, 3]), "has sizes [3], the input has [2]"),
        (np.array([[1, 2]]), "has sizes [1, 2], the input has [2]"),
    ],
)
def test_run_rejects_values_that_do_not_fit_an_input(shell, asset, tmp_path, ids, expected):
    np.savez(tmp_path / "given.npz", number=np.float32(1), ids=ids)
    result = shell("run", asset, "given.npz", "--json")
    assert result.code == 2
    assert expected in result.json["error"]["message"]


def test_unknown_function_and_engine_are_rejected(shell, asset):
    result = shell("bench", asset, "--function", "other", "--json")
    assert "has no function 'other'; it has ['main']" in result.json["error"]["message"]
    result = shell("verify", "models.py:with_args", asset, "--function", "other", "--json")
    assert (result.code, result.json["error"]["code"]) == (2, "usage")
    result = shell("run", asset, "--engine", "gpu", "--json")
    assert (result.code, result.json["error"]["code"]) == (2, "usage")


@pytest.mark.parametrize("command", ["inspect", "doctor", "run", "bench", "strip", "verify"])
def test_folder_without_asset_is_rejected(shell, tmp_path, command):
    (tmp_path / "folder.aimodel").mkdir()
    source = ("models.py:with_args",) if command == "verify" else ()
    result = shell(command, *source, "folder.aimodel", "--json")
    assert (result.code, result.json["error"]["code"]) == (2, "CAT120")
    result = shell(command, *source, "absent.aimodel", "--json")
    assert result.code == 2


def test_truncated_bytecode_without_hash_is_reported(shell, tmp_path):
    asset = saved(tmp_path / "one.aimodel", nn.ReLU(), torch.ones(3))
    (asset / "main.hash").unlink()
    assert shell("inspect", asset).code == 0
    stored = (asset / "main.mlirb").read_bytes()
    (asset / "main.mlirb").write_bytes(stored[:-40])
    result = shell("inspect", asset)
    assert (result.code, "main.mlirb: it ends too early" in result.err) == (2, True)


@pytest.mark.parametrize("path", ["", ".", "net", "models.py/net.aimodel"])
def test_unwritable_path_is_rejected_before_conversion(shell, monkeypatch, path):
    from coreai_torch.api import converting

    monkeypatch.setattr(converting, "capture", None)  # the first step of a conversion
    result = shell("convert", "models.py:with_args", "-o", path, "--json")
    assert result.code in (2, 3)
    assert os.listdir() == ["models.py"]


def test_closed_pipe_is_ignored():
    lists = "from coreai_torch.cli import main; main(['ops'])"
    command = [sys.executable, "-W", "ignore", "-c", lists]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


class Numbered(nn.Module):
    def forward(self, x):
        return x.reshape(()) * 2


def test_rank_0_tensor_is_not_a_hazard(shell, tmp_path):
    asset = saved(tmp_path / "number.aimodel", Numbered(), torch.ones(1))
    result = shell("doctor", asset, "--json")
    assert (result.code, result.json["hazards"]) == (0, [])
