"""GPTQ, AWQ and 8-bit activations: errors on calibration data, and conversion."""

import copy

import pytest
import torch
from conversion import checked, saved_bytes
from torch import nn

from coreai_torch import compress
from coreai_torch.errors import ConversionError

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao warns about libraries it cannot load

INPUTS = 64


def data(count=6, rows=64, inputs=INPUTS, seed=3):
    """Return correlated inputs with a few large channels, as those of language models are."""
    draw = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=torch.Generator().manual_seed(9)) / inputs**0.5
    mix[:, :4] *= 12
    return [(torch.randn(rows, inputs, generator=draw) @ mix,) for _ in range(count)]


def perceptron(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 128), nn.ReLU(), nn.Linear(128, 64)).eval().to(dtype)


def output_error(model, plain, inputs):
    with torch.no_grad():
        wrong = sum(float((model(*x) - plain(*x)).square().sum()) for x in inputs)
        total = sum(float(plain(*x).square().sum()) for x in inputs)
    return (wrong / total) ** 0.5


def compressed(model, *args, **kwargs):
    model = copy.deepcopy(model)
    return model, compress(model, *args, **kwargs)


@pytest.mark.parametrize("scheme", ["int4", "int4/32", "uint4/32", "int3/32", "palettize3", "fp8"])
def test_gptq_has_a_lower_error_than_rounding_to_nearest(scheme):
    plain = perceptron()
    nearest, _ = compressed(plain, scheme)
    tuned, report = compressed(plain, scheme, method="gptq", calibration=data())
    fresh = data(seed=4)  # the error is lower on other data too
    assert output_error(tuned, plain, fresh) < 0.9 * output_error(nearest, plain, fresh)
    first = plain[0]
    want = output_error(lambda x: x @ tuned[0].weight.T, lambda x: x @ first.weight.T, data())
    assert report["0.weight"].output_error == pytest.approx(want, rel=0.02)
    assert report["0.weight"].error > 0
    assert "output error" in str(report)


def test_gptq_program_equals_the_compressed_model():
    model, report = compressed(perceptron(), "int4/32", method="gptq", calibration=data())
    program = checked(model, data(1)[0][0])
    assert report.bytes <= saved_bytes(program) - 4 * 192 < report.bytes + 5_000


def test_gptq_without_correlation_is_rounding_to_nearest():
    layer = nn.Linear(32, 64)
    eye = [(32**0.5 * torch.eye(32),)]
    tuned, _ = compressed(layer, "int4", method="gptq", calibration=eye)
    nearest, _ = compressed(layer, "int4")
    assert torch.equal(tuned.weight, nearest.weight)


def test_gptq_of_convolutions():
    torch.manual_seed(0)
    image = nn.Conv2d(8, 32, 3, padding=1, stride=2)
    plain = nn.Sequential(image, nn.Flatten(2), nn.Conv1d(32, 64, 3))
    kernel = torch.ones(8, 8, 5, 5) / 25
    smooth = [(nn.functional.conv2d(torch.randn(2, 8, 16, 16), kernel, padding=2),)] * 2
    nearest, _ = compressed(plain, "int3")
    tuned, report = compressed(plain, "int3", method="gptq", calibration=smooth)
    assert all(row.output_error is not None for row in report.compressed)
    assert output_error(tuned, plain, smooth) < 0.8 * output_error(nearest, plain, smooth)


def test_gptq_of_a_transposed_linear_layer():
    from transformers.pytorch_utils import Conv1D

    torch.manual_seed(0)
    plain = Conv1D(128, INPUTS)
    nearest, _ = compressed(plain, "uint4/32")
    tuned, report = compressed(plain, "uint4/32", method="gptq", calibration=data())
    assert report.compressed[0].output_error is not None
    assert output_error(tuned, plain, data()) < 0.9 * output_error(nearest, plain, data())


def test_notes_say_why_a_weight_is_rounded_to_nearest():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(64, INPUTS)
            self.head = nn.Linear(INPUTS, 64, bias=False)
            self.head.weight = self.embed.weight
            self.unused = nn.Linear(INPUTS, 64)
            self.last = nn.Linear(64, 64)

        def forward(self, x):
            return self.last(self.head(self.embed(x)))

    ids = [{"x": torch.tensor([[1, 2, 3]])}]
    _, report = compressed(Model(), {"last": "fp4", "*": "int4"}, method="gptq", calibration=ids)
    assert report["embed.weight"].why == "rounded to nearest: a tied weight"
    assert report["unused.weight"].why == "rounded to nearest: no calibration data for this layer"
    assert report["last.weight"].why == "rounded to nearest: GPTQ does not support fp4"


def salient(seed):
    """Return inputs with a few large channels."""
    draw = torch.Generator().manual_seed(seed)
    sizes = torch.ones(INPUTS).index_fill(0, torch.tensor([3, 17, 40]), 20.0)
    return [(torch.randn(64, INPUTS, generator=draw) * sizes,) for _ in range(4)]


@pytest.mark.parametrize("scheme", ["int4/32", "int3"])
def test_awq_has_a_lower_error_than_rounding_to_nearest(scheme):
    pytest.importorskip("torchao")
    plain = perceptron()
    # Weights with a few large numbers, as trained ones: scaling up small ones then costs little.
    torch.manual_seed(1)
    plain[0].weight.data = 0.1 * torch.randn(128, INPUTS) ** 3
    nearest, _ = compressed(plain, scheme, only="0")
    tuned, report = compressed(plain, scheme, only="0", method="awq", calibration=salient(3))
    fresh = salient(4)
    assert output_error(tuned, plain, fresh) < 0.8 * output_error(nearest, plain, fresh)
    first = lambda x: plain[0](x) - plain[0].bias  # noqa: E731
    found = output_error(lambda x: tuned[0](x) - plain[0].bias, first, salient(3))
    assert report["0.weight"].output_error == pytest.approx(found, rel=0.02)


def test_awq_program_equals_the_compressed_model(tmp_path):
    pytest.importorskip("torchao")
    model, report = compressed(perceptron(), "int4/32", method="awq", calibration=data())
    program = checked(model, data(1)[0][0])
    factors = 4 * (INPUTS + 128)
    assert report.bytes <= saved_bytes(program) - 4 * 192 - factors < report.bytes + 5_000
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded(*data(1)[0]), model(*data(1)[0]))


@pytest.mark.parametrize("calibration", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
def test_activations_in_8_bits(calibration, dtype):
    plain = perceptron(dtype)
    inputs = [((x / 32).to(dtype),) for (x,) in data()]
    # In float16 the inputs of a second layer differ in their last bits, and so do a few integers.
    layers = {"only": "0"} if dtype == torch.float16 else {}
    model, report = compressed(
        plain, activations="int8", calibration=inputs if calibration else None, **layers
    )
    assert {(row.scheme, row.inputs) for row in report.compressed} == {("int8", "int8")}
    x = inputs[0][0]
    weights_only, _ = compressed(plain, "int8", **layers)
    assert not torch.equal(model(x), weights_only(x))
    assert output_error(model, plain, inputs) < 0.03
    rounded = model[0].compressed_input(x)
    assert len(rounded.unique()) <= 256
    program = checked(model, x)
    assert "coreai.quantize" in str(program.module)


def test_activations_of_a_convolution():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3))
    image = torch.randn(1, 8, 9, 9)
    schemes = {"0": "int4", "2": "int8"}
    model, report = compressed(plain, schemes, activations="int8", calibration=image)
    assert [row.inputs for row in report.rows] == ["int8", "int8"]
    checked(model, image)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "int4", "method": "gptq"}, "needs calibration data"),
        ({"scheme": "int4", "method": "rtn"}, "unknown method 'rtn'"),
        ({"activations": "int4"}, "activations='int4' is not supported"),
        ({"scheme": "int4", "method": "gptq", "calibration": []}, "calibration is empty"),
        ({}, "compress needs a scheme"),
        ({"scheme": "int4", "method": "gptq", "calibration": 3}, "calibration is 3"),
        ({"scheme": "int4", "calibration": [1]}, "calibration is not used"),
    ],
)
def test_wrong_arguments_raise(arguments, message):
    with pytest.raises(ConversionError, match=message):
        compress(perceptron(), **arguments)
