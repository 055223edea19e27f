"""Bool ports become numbers, 64-bit ports are noted, labels and metadata are stored."""

from __future__ import annotations

import json

import pytest
import torch
from runtime import run
from torch import nn

import coreai_torch
from coreai_torch import errors
from coreai_torch.asset.reading import read


class Masked(nn.Module):
    """Takes and returns every kind of number that an app cannot pass."""

    def forward(self, mask, index, value):
        return mask & (index > 2), index + 1, torch.where(mask, value, 2 * value)


INPUTS = (torch.tensor([True, False, True]), torch.tensor([1, 5, 9]), torch.rand(3).double())


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_bool_ports_become_numbers(dtype):
    program = coreai_torch.convert(Masked(), INPUTS, bool_ports=dtype)
    mask = INPUTS[0].to(getattr(torch, dtype))
    found = list(run(program, {"mask": mask, "index": INPUTS[1], "value": INPUTS[2]}).values())
    want = Masked()(*INPUTS)
    assert found[0].dtype == getattr(torch, dtype)
    assert torch.equal(found[0].bool(), want[0])
    assert torch.equal(found[1].long(), want[1])
    assert torch.equal(found[2], want[2].float())
    elements = {p.type.element for p in read(program).functions["main"].inputs}
    assert "i1" not in elements


def test_notes_name_each_port_of_another_dtype():
    program = coreai_torch.convert(Masked(), INPUTS, bool_ports="int8", verify=False)
    assert program.port_notes[:3] == (
        "input 'mask' is bool in the model and int8 in the program",
        "input 'index' is int64 in the model and int32 in the program",
        "input 'value' is float64 in the model and float32 in the program",
    )
    assert len(program.port_notes) == 6
    plain = coreai_torch.convert(nn.ReLU(), (torch.ones(2),), verify=False)
    assert plain.port_notes == ()


def test_unknown_bool_port_is_rejected():
    with pytest.raises(errors.ConversionError, match="bool_ports is 'int'"):
        coreai_torch.convert(Masked(), INPUTS, bool_ports="int")


def test_labels_and_metadata_are_read_back(tmp_path):
    path = tmp_path / "net.aimodel"
    program = coreai_torch.convert(
        nn.Linear(4, 2),
        (torch.ones(1, 4),),
        output_names=["scores"],
        labels=["cat", 'the "other" dog'],
        metadata={"author": "Ada", "crop": [224, 224]},
        verify=False,
        output=path,
    )
    assert program.metadata["labels"] == {"scores": ["cat", 'the "other" dog']}
    found = coreai_torch.read_metadata(path)
    assert found["labels"] == {"scores": ["cat", 'the "other" dog']}
    assert found["author"] == "Ada"
    assert json.loads(found["crop"]) == [224, 224]
    assert coreai_torch.read_metadata(program) == program.metadata


class Segmenter(nn.Module):
    def forward(self, x):
        return x[:, :2] * 2


@pytest.mark.parametrize("named", [False, True])
def test_labels_of_another_axis_are_told_where_it_is(named):
    rows = None if named else {"x": {3: torch.export.Dim("width", min=2, max=64)}}
    labels = ["cat", "dog"]
    with pytest.raises(errors.NamingError) as raised:
        coreai_torch.convert(
            Segmenter(),
            (torch.ones(1, 3, 8, 16),),
            dynamic_shapes=rows,
            output_names=["logits"],
            labels=labels if not named else {"logits": labels},
            verify=False,
        )
    text = str(raised.value)
    assert ("[1, 2, 8, 16]" if named else "[1, 2, 8, dynamic]") in text
    assert "return logits.movedim(1, -1) in the model: axis 1 has 2 classes" in text


@pytest.mark.parametrize(
    "labels", [["a", "b", "c"], {"scores": ["a"]}, {"other": ["a", "b"]}, "ab"]
)
def test_labels_that_do_not_fit_are_rejected(labels):
    with pytest.raises(errors.NamingError, match=r"label|output"):
        coreai_torch.convert(
            nn.Linear(4, 2),
            (torch.ones(1, 4),),
            output_names=["scores"],
            labels=labels,
            verify=False,
        )


@pytest.mark.parametrize("metadata", [{"a": torch.ones(2)}, {1: "x"}, {"a": float("nan")}])
def test_metadata_that_an_asset_cannot_store_is_rejected_before_the_conversion(metadata):
    with pytest.raises(errors.ArgumentTypeError, match="metadata"):
        coreai_torch.convert(torch.nn.Linear(2, 2), (torch.ones(1, 2),), metadata=metadata)
