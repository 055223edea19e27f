"""The options of `convert` for a target."""

MODEL = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.round(x)
"""


def convert(shell, *options):
    from pathlib import Path

    Path("rounding.py").write_text(MODEL)
    given = ("-i", "x=f32[2,3]", "-o", "net.aimodel", "--no-verify", "--json")
    return shell("convert", "rounding.py:Net", *given, *options)


def test_target_rewrites(shell):
    result = convert(shell, "--target", "gpu")
    assert [one["code"] for one in result.json["rewrites"]] == ["HAZ11"]
    found = shell("lint", "net.aimodel", "--target", "gpu", "--json").json["findings"]
    assert found == []


def test_rewrites_can_be_left_out(shell):
    assert "rewrites" not in convert(shell, "--target", "gpu", "--no-safe").json
    assert "rewrites" not in convert(shell, "--target", "gpu", "--no-rewrite", "HAZ11").json
    text = shell("lint", "net.aimodel").out
    assert "convert with --target, which rewrites it" in text


def test_rewrites_on_request_are_named(shell):
    from pathlib import Path

    Path("linear.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(3, 4)\n")
    given = ("linear.py:net", "-i", "input=f32[2,3]", "-o", "net.aimodel", "--no-verify", "--json")
    options = ("--target", "neural_engine", "--rewrite", "PLACE15")
    result = shell("convert", *given, *options)
    assert {one["code"] for one in result.json["rewrites"]} == {"PLACE15"}
    assert result.json["regions"]["target"] == "neural_engine"


def test_unknown_target_is_rejected(shell):
    result = convert(shell, "--target", "npu")
    assert (result.code, "'npu' is an unknown target" in result.out + result.err) == (2, True)


def test_sizes_become_entry_points(shell):
    assert convert(shell, "--size", "x=1,3", "--size", "x=4,3").code == 0
    found = shell("inspect", "net.aimodel", "--json").json["functions"]
    assert [function["name"] for function in found] == ["main_1x3", "main_4x3"]
    assert convert(shell, "--size", "a:1,3", "--size", "b:x=4,3").code == 0
    found = shell("inspect", "net.aimodel", "--json").json["functions"]
    assert [function["name"] for function in found] == ["a", "b"]


def test_wrong_size_is_rejected(shell):
    assert convert(shell, "--size", "x=1,a").code == 2
    assert convert(shell, "--size", "").code == 2
    assert convert(shell, "--image", "").code == 2
    assert convert(shell, "--size", "a:x=1,3", "--size", "x=4,3").code == 2
    assert convert(shell, "--size", "y=1,3").code == 3
