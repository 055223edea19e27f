"""The options of `convert`: objects, and their fields as keywords."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import Ports, Precision, Target, TorchConverter
from coreai_torch.errors import ArgumentTypeError, ConversionError

X = torch.linspace(-2, 2, 24).reshape(3, 8)


MODEL = nn.Linear(8, 4).eval()


def convert(**options):
    return coreai_torch.convert(MODEL, (X,), verify=False, **options)


def test_objects_and_keywords_make_the_same_program():
    objects = convert(
        ports=Ports(["features"], ["scores"], labels=list("abcd")),
        precision=Precision("float16", keep=["aten.linear*"], calibration=[(X,)]),
        target=Target("neural_engine", exact=True, skip_rewrites=["HAZ11"]),
    )
    keywords = convert(
        input_names=["features"],
        output_names=["scores"],
        labels=list("abcd"),
        precision="float16",
        keep=["aten.linear*"],
        calibration=[(X,)],
        target="neural_engine",
        exact=True,
        skip_rewrites=["HAZ11"],
    )
    assert str(objects) == str(keywords)
    assert objects.metadata == keywords.metadata


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"imagse": {}}, r"(?s)convert has no argument 'imagse'.*pass images="),
        ({"nonsense": 1}, r"(?s)convert has no argument 'nonsense'.*pass one of input_names, "),
        ({"ports": Ports(), "labels": ["a"]}, r"labels is given beside ports=Ports"),
        ({"ports": ["x"]}, r"(?s)ports is \['x'\].*pass coreai_torch.Ports"),
        ({"precision": Precision(), "half_ports": True}, r"half_ports is given beside precision"),
        ({"precision": 16}, r"precision is 16"),
        ({"target": Target("gpu"), "exact": True}, r"exact is given beside target=Target"),
        ({"target": 3}, r"(?s)target is 3.*pass coreai_torch.Target"),
        ({"keep": ["aten.exp"]}, r"keep has no effect without precision"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ConversionError, match=message):
        convert(**options)


def test_a_converter_takes_a_target_object_or_its_fields():
    with pytest.raises(ArgumentTypeError, match="exact is given beside target"):
        TorchConverter(target=Target("gpu"), exact=True)
    with pytest.raises(ConversionError, match="target is 'tpu'"):
        Target("tpu")
    whole = TorchConverter(target=Target("linux", exact=True))
    assert vars(whole).keys() == vars(TorchConverter(target="linux", exact=True)).keys()
    assert whole._exact
    assert not TorchConverter(target="linux")._exact
