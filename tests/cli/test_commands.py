"""The commands that take a model: convert, check, verify; and what they say when it goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
from cli.shell import saved
from torch import nn

import coreai_torch

EXTERNALIZE = ("convert", "models.py:with_args", "-o", "n.aimodel", "--externalize")


def test_help_does_not_wait_for_torch():
    script = (
        "import sys\nsys.argv = ['coreai-torch']\nfrom coreai_torch.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as left:\n    assert not left.code\n"
        "assert 'torch' not in sys.modules and 'coreai' not in sys.modules\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    for command in ("convert", "check", "verify", "inspect", "run", "bench", "diff", "ops"):
        assert f"  {command} " in said.stdout


def test_every_command_shows_examples_and_takes_json(shell):
    for command in ("convert", "check", "verify", "inspect", "run", "bench", "diff", "ops"):
        said = shell(command, "--help")
        assert said.code == 0
        assert f"coreai-torch {command} " in said.out
        assert "--json" in said.out


def test_the_version(shell):
    assert shell("--version").out.strip() == coreai_torch.__version__


def test_convert_checks_saves_and_answers(shell):
    said = shell(
        "convert", "models.py:net", "-i", "x=f32[rows:3:1..9,4]", "-o", "net.aimodel", "--json"
    )
    assert said.code == 0, said.out + said.err
    assert said.json["ok"] is True
    assert said.json["verified"] is True
    assert said.json["output"] == "net.aimodel"
    assert sorted(os.listdir()) == ["models.py", "net.aimodel"]
    inputs = shell("inspect", "net.aimodel", "--json").json["functions"][0]["inputs"]
    assert inputs == [{"name": "x", "dtype": "f32", "shape": [None, 4]}]


def test_convert_takes_a_saved_program_and_names(shell):
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(3),)), "relu.pt2")
    said = shell(
        *("convert", "relu.pt2", "-o", "relu.aimodel", "--no-verify"),
        *("--input-names", "given", "--output-names", "made"),
    )
    assert said.code == 0, said.err
    assert "numbers not checked" in said.out
    assert "input   given: f32[3]" in shell("inspect", "relu.aimodel").out


def test_convert_keeps_classes_whole_that_are_named(shell):
    made = ("convert", "models.py:with_args", "-o", "net.aimodel", "--no-verify")
    plain = shell(*made, "--externalize", "torch.nn:LayerNorm")
    assert plain.code == 0, plain.err
    kept = shell("inspect", "net.aimodel", "--json").json
    assert [one["name"].split("_")[0] for one in kept["functions"]] == ["norm", "main"]
    named = shell(*made, "--externalize", "models.py:Net=whole(training)")
    assert named.code == 0, named.err
    assert "whole" in shell("inspect", "net.aimodel", "--json").json["composites"]


def test_convert_that_fails_saves_nothing_and_tells_the_code(shell):
    said = shell("convert", "models.py:bad", "-o", "bad.aimodel")
    assert said.code == 3
    assert "no lowering for shell_models.mystery.default, used 2 times" in said.err
    assert said.err.rstrip().endswith("code  CAT102")
    assert os.listdir() == ["models.py"]


def test_check_lists_every_blocker_with_places_and_ways_out(shell):
    said = shell("check", "models.py:bad", "--json")
    assert said.code == 1
    mystery, rand = said.json["blockers"]
    told = (mystery["op"], mystery["count"], mystery["code"])
    assert told == ("shell_models.mystery.default", 2, "CAT102")
    assert [place["module"] for place in mystery["places"]] == ["first", "second"]
    assert "models.py" in mystery["places"][0]["source_line"]
    assert "register_torch_lowering" in mystery["hint"]
    assert (rand["op"], rand["count"]) == ("aten.rand.default", 1)
    assert "random numbers drawn by the caller" in rand["hint"]
    text = shell("check", "models.py:bad").out
    assert "cannot be converted: 2 blockers in 3 places" in text
    assert "shell_models.mystery.default, 2 times: no lowering" in text


def test_check_of_what_converts_is_right_and_converts_nothing(shell):
    said = shell("check", "models.py:with_args")
    assert (said.code, said.out) == (0, "models.py:with_args can be converted: 3 ops\n")
    assert os.listdir() == ["models.py"]


def test_a_model_that_cannot_be_exported_fails_its_check(shell):
    said = shell("check", "models.py:asks", "--json")
    assert said.code == 1
    assert said.json["export"]["code"] == "CAT109"


def test_kernels_of_the_factorys_module_are_registered(shell):
    assert shell("check", "models.py:kernels").code == 0
    said = shell("verify", "models.py:kernels", "--seeds", 0, "--no-edges", "--json")
    assert said.code == 0, said.out + said.err
    assert said.json["kernels"] == ["of_the_shell"]


def test_verify_leaves_with_1_when_the_numbers_differ(shell, tmp_path):
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


def test_wrong_calls_leave_with_2_and_an_example(shell):
    for arguments, said in [
        (("convert", "models.py:net", "-o", "n.aimodel", "-i", "x"), "'x' is no input; try x=f32"),
        (("convert", "models.py:net", "-o", "n.aimodel", "-i", "x=f9[3]"), "'f9' is no dtype"),
        (("convert", "models.py:net", "-o", "n.aimodel"), "missing a required argument: 'x'"),
        (("check", "models.py:net", "-i", "x=f32[n:1,4]"), "torch fixes an example size"),
        (("check", "models.py:none"), "has no 'none'"),
        (("check", "models.py:number"), "gave a int; a factory returns an nn.Module"),
        (("check", "nothing"), "neither a .pt2 nor module:factory"),
        (("check", "absent.module:net"), "no module 'absent'"),
        (("check", "absent.py:net"), "there is no file absent.py"),
        (("check", "absent.pt2"), "there is no file absent.pt2"),
        ((*EXTERNALIZE, "Net"), "'Net' names no class; try models.py:Norm"),
        ((*EXTERNALIZE, "models.py:None"), "models.py has no 'None'; it has ['MetalParameter"),
        (("inspect", "absent.aimodel"), "there is no asset at absent.aimodel"),
        (("nothing",), "No such command 'nothing'"),
        (("verify",), "coreai-torch verify"),
    ]:
        found = shell(*arguments)
        assert found.code == 2, arguments
        assert said in " ".join(found.err.split()) + " ".join(found.out.split()), arguments


def test_errors_are_json_too(shell):
    said = shell("check", "absent.pt2", "--json")
    assert said.code == 2
    assert said.json["error"]["code"] == "usage"
    said = shell("convert", "models.py:bad", "-o", "bad.aimodel", "--json")
    assert said.json["error"]["code"] == "CAT102"


def test_an_interruption_is_told_and_leaves_nothing(shell, monkeypatch):
    from coreai_torch import pipeline

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.Program, "_write", interrupted)
    said = shell("convert", "models.py:with_args", "-o", "n.aimodel", "--no-verify")
    assert said.code == 130
    assert "nothing was left half-written" in said.err
    assert os.listdir() == ["models.py"]
