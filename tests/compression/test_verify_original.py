"""`verify` of a compressed program against the original model."""

import copy
import json

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import compress, verify
from coreai_torch.verification import TrialPlan

FEW = TrialPlan(seeds=1, sizes=0, edges=False)
GIVEN = TrialPlan(seeds=0, sizes=0, edges=False)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).eval()


def x():
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(1))


def converted(plain, path, *args, **kwargs):
    other = copy.deepcopy(plain)
    compress(other, *args, **kwargs)
    coreai_torch.convert(other, (x(),), output=path, verify=False)
    with torch.no_grad():
        return float((other(x()) - plain(x())).norm() / plain(x()).norm())


@pytest.mark.parametrize(
    ("scheme", "stored"),
    [
        ("int4/32", "si4"),
        ("sparse50+int8", "si8"),
        pytest.param("palettize3", "ui3", marks=pytest.mark.slow),
        pytest.param("fp4", "f4E2M1FN", marks=pytest.mark.slow),
    ],
)
def test_compressed_weights_explain_the_error(tmp_path, scheme, stored):
    plain = model()
    before = copy.deepcopy(plain.state_dict())
    want = converted(plain, tmp_path / "m.aimodel", {"0": scheme})
    verdict = verify(plain, tmp_path / "m.aimodel", (x(),), trials=FEW)
    assert all(torch.equal(before[name], value) for name, value in plain.state_dict().items())
    assert not verdict.ok  # the numbers differ from those of the original model
    effect = verdict.compression
    assert effect.ok
    assert [weight.name for weight in effect.weights] == ["0.weight"]
    assert effect.weights[0].stored == stored
    assert effect.of == 2
    (output,) = effect.outputs
    assert output.by_weights == pytest.approx(want, rel=1e-3)
    assert output.error == pytest.approx(want, rel=1e-3)
    assert output.rest < 1e-5
    assert 0.999 < output.explained <= 1
    text = str(verdict)
    assert "the program stores 1 of 2 weights compressed" in text
    assert "the program matches the model with the compressed weights in 4 calls" in text
    assert "causes the difference" not in text
    assert "is wrong" not in text
    data = json.loads(json.dumps(verdict.as_dict()))
    assert data["compression"]["weights"][0]["name"] == "0.weight"
    assert data["compression"]["ok"]


@pytest.mark.parametrize(
    ("scheme", "data", "code"),
    [
        ("int4/32", "quantized_data", -4),
        ("int8", "quantized_data", -100),
        ("palettize3", "indices", 2),
        ("sparse50+int8", "parametrizations.quantized_data.0.nonzero_data", 4),
    ],
)
def test_element_that_changed_after_compression_is_named(tmp_path, scheme, data, code):
    plain = model()
    other = copy.deepcopy(plain)
    compress(other, {"0": scheme})
    codes = other.get_buffer(f"0.parametrizations.weight.0.{data}").view(-1)
    assert codes[5] not in (code - 1, code, code + 1)
    codes[5] = code
    path = tmp_path / "m.aimodel"
    coreai_torch.convert(other, (x(),), output=path, verify=False)
    verdict = verify(plain, path, (x(),), trials=GIVEN)
    assert not verdict.ok
    (changed,) = verdict.weights
    assert (changed.name, changed.module, changed.elements) == ("0.weight", "0", 8192)
    assert changed.differ == 1
    assert changed.largest > 0.01
    assert "'0.weight' of module '0', tensor<128x64xf32>: 1 of 8192 elements differ" in str(verdict)


@pytest.mark.parametrize("scheme", ["int4/32", "palettize3", "sparse50+int8", "fp4"])
def test_rounding_is_not_called_a_change(tmp_path, scheme):
    plain = model()
    converted(plain, tmp_path / "m.aimodel", {"0": scheme})
    assert verify(plain, tmp_path / "m.aimodel", (x(),), trials=GIVEN).weights == ()


def test_uncompressed_weight_that_changed_is_named(tmp_path):
    plain = model()
    other = copy.deepcopy(plain)
    other[2].bias.data[3] += 0.3
    converted(other, tmp_path / "m.aimodel", {"0": "int8"})
    verdict = verify(plain, tmp_path / "m.aimodel", (x(),), trials=GIVEN)
    assert [(w.name, w.differ) for w in verdict.weights] == [("2.bias", 1)]


def test_another_error_is_not_explained(tmp_path):
    plain = model()
    other = copy.deepcopy(plain)
    other[2].bias.data += 0.3
    converted(other, tmp_path / "m.aimodel", "int8")
    verdict = verify(plain, tmp_path / "m.aimodel", (x(),), trials=FEW)
    assert not verdict.ok
    assert not verdict.compression.ok
    assert verdict.compression.outputs[0].explained < 0.1
    assert "does not match the model with these weights" in str(verdict)


def test_tolerance_accepts_the_compression(tmp_path):
    plain = model()
    converted(plain, tmp_path / "m.aimodel", "int8")
    verdict = verify(plain, tmp_path / "m.aimodel", (x(),), trials=FEW, tolerance=0.05)
    assert verdict.ok
    assert verdict.compression.ok


def test_rounded_activations_are_named(tmp_path):
    plain = model()
    converted(plain, tmp_path / "m.aimodel", activations="int8", calibration=x())
    verdict = verify(plain, tmp_path / "m.aimodel", (x(),), trials=FEW)
    assert verdict.compression.quantizes_activations
    assert "also rounds activations" in str(verdict)


def test_compressed_model_has_no_effect_to_explain(tmp_path):
    compressed = model()
    compress(compressed, "int8")
    coreai_torch.convert(compressed, (x(),), output=tmp_path / "m.aimodel", verify=False)
    verdict = verify(compressed, tmp_path / "m.aimodel", (x(),), trials=FEW)
    assert verdict.ok
    assert verdict.compression is None
