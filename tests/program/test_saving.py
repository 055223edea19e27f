"""Saving: deterministic bytes, one copy of each weight, and nothing lost when it fails."""

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
    one, two = Net(), Net()  # equal by value, not by storage
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


def test_a_second_save_replaces_the_first(tmp_path):
    path = tmp_path / "m.aimodel"
    converted(Net(), torch.ones(2, 64)).save_asset(path)
    first = bytecode(path)
    asset = converted(Net(), torch.ones(5, 64)).save_asset(str(path))
    assert asset.path == path
    assert bytecode(path) != first
    assert os.listdir(tmp_path) == ["m.aimodel"]


@pytest.mark.parametrize("trouble", [RuntimeError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_asset_and_no_debris(tmp_path, monkeypatch, trouble):
    path = tmp_path / "m.aimodel"
    program = converted(Net(), torch.ones(2, 64))
    program.save_asset(path)
    before = bytecode(path)

    def fail(*args, **kwargs):
        raise trouble

    monkeypatch.setattr(type(program).__mro__[1], "_save_bytecode", fail)
    with pytest.raises(BaseException) as raised:  # noqa: PT011  an interruption is no Exception
        program.save_asset(path)
    assert trouble in (raised.value, raised.value.__cause__)
    assert bytecode(path) == before
    assert os.listdir(tmp_path) == ["m.aimodel"]


def test_a_failed_swap_puts_the_old_asset_back(tmp_path, monkeypatch):
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


def test_the_path_must_end_in_aimodel(tmp_path):
    program = converted(Net(), torch.ones(2, 64))
    with pytest.raises(ValueError, match=r"ends in .aimodel"):
        program.save_asset(tmp_path / "m.mlmodel")


def test_metadata_reaches_the_asset(tmp_path):
    program = converted(Net(), torch.ones(2, 64))
    own = AIModelAssetMetadata()
    own.author = "Ada"
    own.set_custom("labels", '["a", "b"]')
    given = {"author": "Ada", "labels": ["a", "b"]}  # what is no text is kept as JSON
    for metadata in (own, given):
        kept = program.save_asset(tmp_path / "m.aimodel", metadata).metadata
        assert kept.author == "Ada"
        assert json.loads(kept.creator_defined_metadata["labels"]) == ["a", "b"]
    assert program.save_asset(tmp_path / "m.aimodel").metadata.author == ""


@pytest.mark.parametrize("metadata", ["by Ada", {1: "x"}, {"x": len}])
def test_metadata_that_cannot_be_kept_is_refused(tmp_path, metadata):
    program = converted(Net(), torch.ones(2, 64))
    with pytest.raises(TypeError):
        program.save_asset(tmp_path / "m.aimodel", metadata)
    assert not os.listdir(tmp_path)


def test_optimize_changes_no_number_and_twice_does_no_harm():
    x = torch.randn(2, 64)
    program = converted(Net(), x)
    plain = runtime.run(program, {"x": x})
    program.optimize()
    once, text = runtime.run(program, {"x": x}), str(program)
    program.optimize()
    assert str(program) == text
    for name, value in plain.items():
        torch.testing.assert_close(once[name], value, rtol=1e-6, atol=1e-6)


def test_an_asset_that_another_process_saves_at_the_same_moment_is_replaced(tmp_path, monkeypatch):
    path, rename = tmp_path / "m.aimodel", Path.rename
    program = converted(Net(), torch.ones(2, 64))
    others = [program.save_asset(tmp_path / "other.aimodel").path]

    def beaten_to_it(self, target):
        if Path(target) == path and others:  # between our two renames
            rename(Path(others.pop()), path)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", beaten_to_it)
    program.save_asset(path)
    assert not others
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.aimodel"]
