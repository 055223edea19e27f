"""The options of the command line about inputs and outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import coreai_torch
from coreai_torch.asset.summary import summarize
from coreai_torch.cli import main

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 2, 3), nn.Linear(2, 3)

    def forward(self, x, mask):
        return self.head(self.stem(x).mean((2, 3)) * mask)


def net():
    return Net().eval(), (torch.rand(1, 3, 8, 8), torch.ones(2, dtype=torch.bool))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ported.py").write_text(MODEL)
    Path("classes.txt").write_text("cat\ndog\n\nbird\n")


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_info:
        main([*arguments, "--json"])
    return exit_info.value.code or 0, json.loads(capsys.readouterr().out)


def convert(capsys, *options):
    command = ["convert", "ported.py:net", "--verify", "none", "-o", "net.aimodel"]
    return call(capsys, *command, *options)


def test_image_bool_ports_labels_and_metadata(capsys):
    image = "x layout=CHW color=BGR scale=1/127.5 mean=1 std=1,2,3"
    code, found = convert(
        capsys, "--image", image, "--bool-ports", "int8", "--labels", "classes.txt",
        "--metadata", "author=Ada", "--output-names", "scores",
    )  # fmt: skip
    assert code == 0
    assert len(found["port_notes"]) == 2
    ports = summarize("net.aimodel").functions[0].inputs
    assert [(p.dtype, p.shape) for p in ports] == [("ui8", (1, 3, 8, 8)), ("si8", (2,))]
    metadata = coreai_torch.read_metadata("net.aimodel")
    assert metadata["labels"] == {"scores": ["cat", "dog", "bird"]}
    assert (metadata["author"], metadata["images"]["x"]["color"]) == ("Ada", "BGR")
    code, found = call(capsys, "inspect", "net.aimodel")
    assert found["metadata"] == metadata
    with pytest.raises(SystemExit):
        main(["inspect", "net.aimodel"])
    assert "labels of scores: 3 (cat, dog, bird)" in capsys.readouterr().out


def test_outputs_cut_the_model(capsys):
    assert convert(capsys, "--outputs", "stem")[0] == 0
    function = summarize("net.aimodel").functions[0]
    assert ([p.name for p in function.inputs], [p.name for p in function.outputs]) == (
        ["x"],
        ["stem"],
    )
    code, found = convert(capsys, "--outputs", "steam")
    assert (code, found["error"]["hint"]) == (2, "pass 'stem'")


@pytest.mark.parametrize("image", ["x colour=BGR", "x mean=a", "x color"])
def test_wrong_image_is_wrong_usage(capsys, image):
    code, found = convert(capsys, "--image", image)
    assert (code, found["error"]["code"]) == (2, "usage")


def test_missing_file_of_labels_is_wrong_usage(capsys):
    code, found = convert(capsys, "--labels", "cat,dog")
    assert (code, found["error"]["code"]) == (2, "usage")
    assert "the file 'cat,dog' does not exist" in found["error"]["message"]
