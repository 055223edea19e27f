"""What users get wrong: files that hold something else, factories that fail, inputs that lie."""

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
    ("source", "code", "told"),
    [
        ("made.py:raises", 3, "made.py:raises raised KeyError: 'abc'"),
        ("made.py:leaves", 3, "made.py:leaves called sys.exit(0)"),
        ("made.py:needs", 2, "needs(width): missing a required argument: 'width'"),
        ("made.py:row", 2, "gave a model with Tensor; behind the model come a tuple"),
        ("made.py:many", 2, "gave a model with tuple, dict, int"),
        ("made.py:nothing", 2, "gave a tuple; a factory returns an nn.Module"),
        ("made.py:HELD", 2, "ReLU.forward(input: torch.Tensor)"),
        ("broken.py:f", 3, "broken.py raised SyntaxError: invalid syntax"),
        ("lacks.py:f", 3, "lacks.py raised ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_a_factory_that_fails_is_told_with_its_line(shell, factories, source, code, told):
    said = shell("check", source, "--json")
    assert said.code == code, said
    assert told in said.json["error"]["message"]
    assert said.json["error"]["code"] == ("CAT112" if code == 3 else "usage")
    if source == "made.py:raises":
        assert 'made.py", line 7' in said.json["error"]["message"]


def test_a_model_that_leaves_the_process_is_no_success(shell, factories):
    said = shell("check", "made.py:Leaves", "-i", "x=f32[2]", "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "CAT112")


def test_what_a_model_prints_is_not_in_the_json(factories, monkeypatch, capfd):
    monkeypatch.chdir(factories)
    with pytest.raises(SystemExit) as left:
        main(["check", "made.py:printing", "--json"])
    said = capfd.readouterr()
    assert (left.value.code, json.loads(said.out)["ok"]) == (0, True)
    assert "from Python" in said.err
    assert "from below" in said.err


def test_an_error_that_nobody_foresaw_is_json_and_leaves_with_3(shell, monkeypatch):
    from coreai_torch import converter

    def fails(*args, **kwargs):
        raise AssertionError("inside")

    monkeypatch.setattr(converter.TorchConverter, "blockers", fails)
    said = shell("check", "models.py:with_args", "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "CAT100")
    assert "AssertionError: inside" in said.json["error"]["message"]
    assert "Traceback" in said.err


@pytest.mark.parametrize("kind", ["empty", "text", "weights", "truncated"])
def test_a_pt2_that_holds_no_program(shell, tmp_path, kind):
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(3),)), path)
    held = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"text"}.get(kind, held[: len(held) // 2]))
    if kind == "weights":
        torch.save(nn.Linear(2, 2).state_dict(), path)
    said = shell("check", path, "--json")
    assert said.code == 2
    assert "holds no exported program that this torch can read" in said.json["error"]["message"]


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (["x=f32[2,4]", "x=f32[3,4]"], "the input 'x' is given more than once"),
        (["x=f32[2,,4]"], "'' is no size"),
        (["x=f32[2,4]<3"], "<3 is for integers"),
        (["x=i8[2,4]<1000"], "<1000 is not between 1 and 128"),
        (["x=i64[2]<0"], "<0 is not between 1"),
        (["x=f32[n:2:9..3,4]"], "the example 2 is not between 9 and 3"),
        (["x=f32[2:1..3,4]"], "a size that varies has a name; try n:2:1..3"),
        (["x=f32[99999999999999999999]"], "'x' of sizes [99999999999999999999] cannot be made"),
        (["x=@empty.npy"], "empty.npy cannot be read: EOFError"),
        (["x=@text.npz"], "text.npz cannot be read: ValueError"),
        (["x=@empty.safetensors"], "empty.safetensors cannot be read: error: unpack requires"),
        (["x=@two.npz"], "two.npz holds ['a', 'b'], not 'x'"),
    ],
)
def test_inputs_that_cannot_be_made(shell, tmp_path, inputs, told):
    for name in ("empty.npy", "text.npz", "empty.safetensors"):
        (tmp_path / name).write_bytes(b"text" if name.startswith("text") else b"")
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))
    given = [word for text in inputs for word in ("-i", text)]
    said = shell("check", "models.py:net", *given, "--json")
    assert said.code == 2, said
    assert told in " ".join(said.json["error"]["message"].split())


class Takes(nn.Module):
    def forward(self, number, ids):
        return number * 2, ids + 1


@pytest.fixture(scope="module")
def asset(tmp_path_factory):
    path = tmp_path_factory.mktemp("assets") / "takes.aimodel"
    return saved(path, Takes(), torch.tensor(2.0), torch.ones(2, dtype=torch.int32))


def test_run_takes_a_number_and_another_byte_order(shell, asset, tmp_path):
    np.save(tmp_path / "number.npy", np.array(3.0, ">f4"))
    np.save(tmp_path / "ids.npy", np.array([1, 2]))
    said = shell("run", asset, "number=number.npy", "ids=ids.npy", "-o", "y.npz")
    assert said.code == 0, said.err
    assert np.load("y.npz")["mul"] == 6


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (np.array([2**40, 1]), "holds numbers that torch.int32 cannot"),
        (np.array([1.5, 1]), "holds torch.float64, which is no torch.int32"),
        (np.array([1, 2, 3]), "gives sizes [3], the input has [2]"),
        (np.array([[1, 2]]), "gives sizes [1, 2], the input has [2]"),
    ],
)
def test_run_refuses_what_an_input_cannot_hold(shell, asset, tmp_path, ids, told):
    np.savez(tmp_path / "given.npz", number=np.float32(1), ids=ids)
    said = shell("run", asset, "given.npz", "--json")
    assert said.code == 2
    assert told in said.json["error"]["message"]


def test_options_that_an_asset_has_not_are_told_with_those_it_has(shell, asset):
    said = shell("bench", asset, "--function", "other", "--json")
    assert "has no function 'other'; there are ['main']" in said.json["error"]["message"]
    said = shell("verify", "models.py:with_args", asset, "--function", "other", "--json")
    assert (said.code, said.json["error"]["code"]) == (2, "usage")
    said = shell("run", asset, "--engine", "gpu", "--json")
    assert (said.code, said.json["error"]["code"]) == (2, "usage")


@pytest.mark.parametrize("command", ["inspect", "doctor", "run", "bench", "strip", "verify"])
def test_a_folder_that_is_no_asset_ends_no_process(shell, tmp_path, command):
    (tmp_path / "folder.aimodel").mkdir()
    source = ("models.py:with_args",) if command == "verify" else ()
    said = shell(command, *source, "folder.aimodel", "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "CAT101")
    said = shell(command, *source, "absent.aimodel", "--json")
    assert said.code == 2


def test_bytecode_without_a_hash_that_ends_early_is_told(shell, tmp_path):
    asset = saved(tmp_path / "one.aimodel", nn.ReLU(), torch.ones(3))
    (asset / "main.hash").unlink()
    assert shell("inspect", asset).code == 0
    held = (asset / "main.mlirb").read_bytes()
    (asset / "main.mlirb").write_bytes(held[:-40])
    said = shell("inspect", asset)
    assert (said.code, "main.mlirb: it ends too early" in said.err) == (3, True)


@pytest.mark.parametrize("path", ["", ".", "net", "models.py/net.aimodel"])
def test_a_path_that_cannot_be_written_is_told_before_anything_is_done(shell, monkeypatch, path):
    from coreai_torch import pipeline

    monkeypatch.setattr(pipeline, "_staged", None)  # which would be the first thing done
    said = shell("convert", "models.py:with_args", "-o", path, "--json")
    assert said.code in (2, 3)
    assert os.listdir() == ["models.py"]


def test_a_reader_that_leaves_early_changes_nothing():
    lists = "from coreai_torch.cli import main; main(['ops'])"
    command = [sys.executable, "-W", "ignore", "-c", lists]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


class Numbered(nn.Module):
    def forward(self, x):
        return x.reshape(()) * 2


def test_a_number_is_no_hazard(shell, tmp_path):
    asset = saved(tmp_path / "number.aimodel", Numbered(), torch.ones(1))
    said = shell("doctor", asset, "--json")
    assert (said.code, said.json["hazards"]) == (0, [])
