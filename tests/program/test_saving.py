"""Saving: deterministic bytes, one copy of each weight, and no loss on failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import runtime
import torch
from coreai.runtime import AIModelAssetMetadata
from staging import converted, exported
from torch import nn

from coreai_torch import TorchConverter


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 64)

    def forward(self, x):
        return self.second(self.first(x) + 1) * 0.5


def bytecode(asset_path):
    return (Path(asset_path) / "main.mlirb").read_bytes()


def test_two_conversions_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        program = converted(Net(), torch.ones(2, 64))
        program.optimize()
        program.save_asset(tmp_path / f"{name}.aimodel")
    assert bytecode(tmp_path / "a.aimodel") == bytecode(tmp_path / "b.aimodel")


def test_two_processes_give_the_same_bytes(tmp_path):
    script = (
        "import sys, torch; sys.path[:0] = sys.argv[2:]\n"
        "from test_saving import Net, converted\n"
        "p = converted(Net(), torch.ones(2, 64)); p.optimize(); p.save_asset(sys.argv[1])\n"
    )
    here = Path(__file__).parent
    folders = [str(here), str(here.parent)]
    for name, seed in (("a", "1"), ("b", "2")):
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / f"{name}.aimodel"), *folders],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
    assert bytecode(tmp_path / "a.aimodel") == bytecode(tmp_path / "b.aimodel")


def test_entrypoints_share_equal_weights(tmp_path):
    one, two = Net(), Net()  # equal values in different storage
    converter = TorchConverter()
    converter.add_exported_program(exported(one, torch.ones(2, 64)), entrypoint_name="prefill")
    alone = converter.to_coreai()
    alone.save_asset(tmp_path / "alone.aimodel")
    converter.add_exported_program(exported(one, torch.ones(1, 64)), entrypoint_name="decode")
    converter.add_exported_program(exported(two, torch.ones(3, 64)), entrypoint_name="other")
    converter.to_coreai().save_asset(tmp_path / "three.aimodel")
    grown = len(bytecode(tmp_path / "three.aimodel")) - len(bytecode(tmp_path / "alone.aimodel"))
    assert grown < 4096  # the weights are 66 kB


def test_tied_weights_are_one_constant(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(64, 64, bias=False)
            self.b = nn.Linear(64, 64, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    program = converted(Tied(), torch.ones(1, 64))
    program.save_asset(tmp_path / "tied.aimodel")
    assert len(bytecode(tmp_path / "tied.aimodel")) < 64 * 64 * 4 + 4096


def test_second_save_replaces_the_first(tmp_path):
    path = tmp_path / "m.aimodel"
    converted(Net(), torch.ones(2, 64)).save_asset(path)
    first = bytecode(path)
    asset = converted(Net(), torch.ones(5, 64)).save_asset(str(path))
    assert asset.path == path
    assert bytecode(path) != first
    assert os.listdir(tmp_path) == ["m.aimodel"]


@pytest.mark.parametrize("failure", [RuntimeError("disk full"), KeyboardInterrupt()])
def test_failure_keeps_the_old_asset_and_leaves_no_files(tmp_path, monkeypatch, failure):
    path = tmp_path / "m.aimodel"
    program = converted(Net(), torch.ones(2, 64))
    program.save_asset(path)
    before = bytecode(path)

    def fail(*args, **kwargs):
        raise failure

    monkeypatch.setattr(type(program), "_save_bytecode", fail)
    with pytest.raises(BaseException) as raised:  # noqa: PT011  KeyboardInterrupt is not an Exception
        program.save_asset(path)
    assert repr(failure) in (repr(raised.value), repr(raised.value.__cause__))
    assert bytecode(path) == before
    assert os.listdir(tmp_path) == ["m.aimodel"]


@pytest.fixture
def two_renames(monkeypatch):
    """A system that cannot exchange two folders."""
    monkeypatch.setattr("coreai_torch.asset.replacing.exchange", lambda one, other: False)


@pytest.mark.usefixtures("two_renames")
def test_failed_swap_restores_the_old_asset(tmp_path, monkeypatch):
    path = tmp_path / "m.aimodel"
    program = converted(Net(), torch.ones(2, 64))
    program.save_asset(path)
    before, rename = bytecode(path), Path.rename

    def refuse_the_new_one(self, target):
        if Path(target) == path and self.name == path.name:
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new_one)
    with pytest.raises(RuntimeError, match="could not be saved: no"):
        program.save_asset(path)
    monkeypatch.undo()
    assert bytecode(path) == before
    assert os.listdir(tmp_path) == ["m.aimodel"]


def test_path_must_end_in_aimodel(tmp_path):
    program = converted(Net(), torch.ones(2, 64))
    with pytest.raises(ValueError, match=r"ends in .aimodel"):
        program.save_asset(tmp_path / "m.mlmodel")


def test_metadata_reaches_the_asset(tmp_path):
    program = converted(Net(), torch.ones(2, 64))
    own = AIModelAssetMetadata()
    own.author = "Ada"
    own.set_custom("labels", '["a", "b"]')
    given = {"author": "Ada", "labels": ["a", "b"]}  # other types are stored as JSON
    for metadata in (own, given):
        kept = program.save_asset(tmp_path / "m.aimodel", metadata).metadata
        assert kept.author == "Ada"
        assert json.loads(kept.creator_defined_metadata["labels"]) == ["a", "b"]
    assert program.save_asset(tmp_path / "m.aimodel").metadata.author == ""


def test_metadata_of_the_program_is_kept_beside_an_object(tmp_path):
    program = converted(Net(), torch.ones(2, 64))
    program.metadata = {"labels": ["a", "b"], "license": "MIT", "version": "1"}
    given = AIModelAssetMetadata()
    given.author = "Ada"
    given.set_custom("version", "2")
    kept = program.save_asset(tmp_path / "m.aimodel", given).metadata
    assert (kept.author, kept.license) == ("Ada", "MIT")
    assert kept.creator_defined_metadata["version"] == "2"
    assert json.loads(kept.creator_defined_metadata["labels"]) == ["a", "b"]
    assert given.license == ""


@pytest.mark.parametrize("metadata", ["by Ada", {1: "x"}, {"x": len}])
def test_metadata_that_cannot_be_stored_is_rejected(tmp_path, metadata):
    program = converted(Net(), torch.ones(2, 64))
    with pytest.raises(TypeError):
        program.save_asset(tmp_path / "m.aimodel", metadata)
    assert not os.listdir(tmp_path)


def test_optimize_keeps_results_and_can_run_twice():
    x = torch.randn(2, 64)
    program = converted(Net(), x)
    plain = runtime.run(program, {"x": x})
    program.optimize()
    once, text = runtime.run(program, {"x": x}), str(program)
    program.optimize()
    assert str(program) == text
    for name, value in plain.items():
        torch.testing.assert_close(once[name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("two_renames")
def test_asset_saved_concurrently_is_replaced(tmp_path, monkeypatch):
    path, rename = tmp_path / "m.aimodel", Path.rename
    program = converted(Net(), torch.ones(2, 64))
    others = [program.save_asset(tmp_path / "other.aimodel").path]

    def beaten_to_it(self, target):
        if Path(target) == path and others:  # between the two renames
            rename(Path(others.pop()), path)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", beaten_to_it)
    program.save_asset(path)
    assert not others
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.aimodel"]
