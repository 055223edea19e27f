"""The commands that take a model (convert, check, verify) and their errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from cli.shell import saved
from torch import nn

import coreai_torch

EXTERNALIZE = ("convert", "models.py:with_args", "-o", "n.aimodel", "--externalize")


def test_help_does_not_import_torch():
    script = (
        "import sys\nsys.argv = ['coreai-torch']\nfrom coreai_torch.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules and 'coreai' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for command in ("convert", "check", "verify", "inspect", "run", "bench", "diff", "ops"):
        assert f"  {command} " in result.stdout


def test_every_command_shows_examples_and_takes_json(shell):
    for command in ("convert", "check", "verify", "inspect", "run", "bench", "diff", "ops"):
        result = shell(command, "--help")
        assert result.code == 0
        assert f"coreai-torch {command} " in result.out
        assert "--json" in result.out


def test_version(shell):
    assert shell("--version").out.strip() == coreai_torch.__version__


def test_convert_verifies_saves_and_prints_json(shell):
    result = shell(
        "convert", "models.py:net", "-i", "x=f32[rows:3:1..9,4]", "-o", "net.aimodel", "--json"
    )
    assert result.code == 0, result.out + result.err
    assert result.json["ok"] is True
    assert result.json["verified"] is True
    assert result.json["output"] == "net.aimodel"
    assert sorted(os.listdir()) == ["models.py", "net.aimodel"]
    inputs = shell("inspect", "net.aimodel", "--json").json["functions"][0]["inputs"]
    ranges = {"0": "rows 1..9"}
    assert inputs == [{"name": "x", "dtype": "f32", "shape": [None, 4], "ranges": ranges}]


def test_convert_takes_a_saved_program_and_names(shell):
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(3),)), "relu.pt2")
    result = shell(
        *("convert", "relu.pt2", "-o", "relu.aimodel", "--no-verify"),
        *("--input-names", "given", "--output-names", "made"),
    )
    assert result.code == 0, result.err
    assert "numbers not checked" in result.out
    assert "input   given: f32[3]" in shell("inspect", "relu.aimodel").out


def test_convert_externalizes_classes(shell):
    made = ("convert", "models.py:with_args", "-o", "net.aimodel", "--no-verify")
    plain = shell(*made, "--externalize", "torch.nn:LayerNorm")
    assert plain.code == 0, plain.err
    kept = shell("inspect", "net.aimodel", "--json").json
    assert [one["name"].split("_")[0] for one in kept["functions"]] == ["norm", "main"]
    named = shell(*made, "--externalize", "models.py:Net=whole(training)")
    assert named.code == 0, named.err
    assert "whole" in shell("inspect", "net.aimodel", "--json").json["composites"]


def test_failed_convert_saves_nothing_and_prints_code(shell):
    result = shell("convert", "models.py:bad", "-o", "bad.aimodel")
    assert result.code == 3
    assert "no lowering for shell_models.mystery.default, used 2 times" in result.err
    assert result.err.rstrip().endswith("code  CAT102")
    assert os.listdir() == ["models.py"]


def test_check_lists_every_blocker_with_places_and_hints(shell):
    result = shell("check", "models.py:bad", "--json")
    assert result.code == 1
    mystery, rand = result.json["blockers"]
    blocker = (mystery["op"], mystery["count"], mystery["code"])
    assert blocker == ("shell_models.mystery.default", 2, "CAT102")
    assert [place["module"] for place in mystery["places"]] == ["first", "second"]
    assert "models.py" in mystery["places"][0]["source_line"]
    assert "register_torch_lowering" in mystery["hint"]
    assert (rand["op"], rand["count"]) == ("aten.rand.default", 1)
    assert 'pass random="input" to convert' in rand["hint"]
    text = shell("check", "models.py:bad").out
    assert "cannot be converted: 2 blockers in 3 places" in text
    assert "shell_models.mystery.default, 2 times: no lowering" in text


def test_check_of_supported_model_succeeds_and_writes_nothing(shell):
    result = shell("check", "models.py:with_args")
    assert (result.code, result.out) == (0, "models.py:with_args can be converted: 3 ops\n")
    assert os.listdir() == ["models.py"]


def test_check_fails_if_export_fails(shell):
    result = shell("check", "models.py:asks", "--json")
    assert result.code == 1
    assert result.json["export"]["code"] == "CAT109"


def test_kernels_in_factory_module_are_registered(shell):
    assert shell("check", "models.py:kernels").code == 0
    result = shell("verify", "models.py:kernels", "--seeds", 0, "--no-edges", "--json")
    assert result.code == 0, result.out + result.err
    assert result.json["kernels"] == ["of_the_shell"]


def test_verify_exits_with_1_if_numbers_differ(shell, tmp_path):
    class Other(nn.Module):
        def forward(self, x):
            return torch.relu(x)

    saved(tmp_path / "other.aimodel", Other(), torch.ones(2, 4))
    options = ("--seeds", 1, "--no-edges", "--json")
    wrong = shell("verify", "models.py:with_args", "other.aimodel", *options)
    assert wrong.code == 1
    assert wrong.json["ok"] is False
    assert wrong.json["trials"][0]["outputs"][0]["max_abs"] > 0.5
    right = shell("verify", "models.py:with_args", *options)
    assert right.code == 0
    assert right.json["worst"]["relu"]["ok"] is True


def test_wrong_usage_exits_with_2_and_shows_example(shell):
    for arguments, message in [
        (
            ("convert", "models.py:net", "-o", "n.aimodel", "-i", "x"),
            "'x' is not an input; try x=f32",
        ),
        (
            ("convert", "models.py:net", "-o", "n.aimodel", "-i", "x=f9[3]"),
            "'f9' is an unknown dtype",
        ),
        (("convert", "models.py:net", "-o", "n.aimodel"), "missing a required argument: 'x'"),
        (("check", "models.py:net", "-i", "x=f32[n:1,4]"), "torch fixes an example size"),
        (("check", "models.py:net", "-i", "x=f32[n:4,n:3]"), "'n' has two values, n:4 and n:3"),
        (
            ("check", "models.py:net", "-i", "x=f32[n:4:1..8,4]", "-i", "scale=f32[n:4,1]"),
            "'n' has two ranges, n:4:1..8 and n:4",
        ),
        (
            ("convert", "models.py:net", "-o", "n.aimodel", "-i", "x=f32[2,4]", "--target", "tpu"),
            "'tpu' is an unknown target; pass one of neural_engine",
        ),
        (("check", "models.py:none"), "has no 'none'"),
        (("check", "models.py:number"), "returned an int; a factory returns an nn.Module"),
        (("check", "nothing"), "neither a .pt2 nor module:factory"),
        (("check", "absent.module:net"), "no module 'absent'"),
        (("check", "absent.py:net"), "the file absent.py does not exist"),
        (("check", "absent.pt2"), "the file absent.pt2 does not exist"),
        ((*EXTERNALIZE, "Net"), "'Net' does not name a class; try models.py:Norm"),
        ((*EXTERNALIZE, "models.py:None"), "models.py has no 'None'; it has ['MetalParameter"),
        (("inspect", "absent.aimodel"), "there is no asset at absent.aimodel"),
        (("nothing",), "No such command 'nothing'"),
        (("verify",), "coreai-torch verify"),
    ]:
        found = shell(*arguments)
        assert found.code == 2, arguments
        assert message in " ".join(found.err.split()) + " ".join(found.out.split()), arguments


def test_a_dry_run_checks_the_numbers_and_writes_nothing(shell):
    given = ("convert", "models.py:net", "-i", "x=f32[2,4]", "-o", "dry.aimodel", "--dry-run")
    result = shell(*given, "--json")
    assert (result.code, result.json["dry_run"], result.json["verified"]) == (0, True, True)
    assert result.json["output"] == "dry.aimodel"
    assert result.json["ops"] > 0
    assert "dry.aimodel (not written): " in shell(*given).out
    assert not Path("dry.aimodel").exists()


def test_json_errors(shell):
    result = shell("check", "absent.pt2", "--json")
    assert result.code == 2
    assert result.json["error"]["code"] == "usage"
    result = shell("convert", "models.py:bad", "-o", "bad.aimodel", "--json")
    assert result.json["error"]["code"] == "CAT102"


def test_interruption_exits_with_130_and_writes_nothing(shell, monkeypatch):
    from coreai_torch.asset.program import Program

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Program, "_write", interrupted)
    result = shell("convert", "models.py:with_args", "-o", "n.aimodel", "--no-verify")
    assert result.code == 130
    assert "no partial file was written" in result.err
    assert os.listdir() == ["models.py"]
