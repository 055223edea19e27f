"""Half precision of models with control flow, states, integers, compressed weights and images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import ImageInput, compress, errors, to_torch
from coreai_torch.precision import Precision

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.CalibrationWarning")
X = torch.linspace(-1, 1, 32).reshape(4, 8)


def results(program, **inputs):
    return list(to_torch(program)(inputs).values())


class Branches(nn.Module):
    """A product, then one of two branches with a weight each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.one, self.two = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        return torch.cond(x.sum() > 0, self.one, self.two, (x,))


class Loop(nn.Module):
    """Halve until the sum is below one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)

    def forward(self, x):
        start = self.first(x)
        (end,) = torch._higher_order_ops.while_loop(
            lambda v: v.abs().sum() > 1, lambda v: (v * 0.5,), (start,)
        )
        return end


@pytest.mark.parametrize("model", [Branches(), Loop()], ids=["cond", "while"])
def test_control_flow_stays_in_float32(model):
    program = coreai_torch.convert(model, (X,), precision="float16")
    assert "control flow" in program.precision_report.defaults.values()
    (got,) = results(program, x=X)
    torch.testing.assert_close(got, model(X), rtol=1e-2, atol=1e-2)


class Integers(nn.Module):
    def forward(self, x, flag):
        return torch.where(flag, x + 1, x * 2), flag.logical_not()


def test_integers_and_bools_are_unchanged():
    x, flag = torch.arange(4, dtype=torch.int32), torch.tensor([True, False, True, False])
    program = coreai_torch.convert(Integers(), (x, flag), precision="float16")
    assert program.precision_report.islands == ()
    assert program.precision_report.float32_share is None
    got = results(program, x=x, flag=flag)
    assert [v.tolist() for v in got] == [[1, 2, 3, 6], [False, True, False, True]]


@pytest.mark.parametrize("scheme", ["int8", "int4", "palettize4", "sparse50"])
def test_compressed_weights_stay_compressed(scheme):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    x = torch.randn(4, 64)
    compress(model, scheme)
    plain = coreai_torch.convert(model, (x,), verify=False)
    program = coreai_torch.convert(model, (x,), precision="float16", calibration=[(x,)])
    assert program.precision_report.islands == ()
    count = lambda p: coreai_torch.report.summarize(p).weights  # noqa: E731
    packed = {kind for kind in count(plain) if kind not in ("f32", "si32", "ui32")}
    assert packed <= set(count(program))
    (got,) = results(program, input=x)
    want = model(x)
    assert (got - want).norm() < 1e-2 * want.norm()


class Named(nn.Module):
    """Take a dictionary and a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, values, pair):
        return self.linear(values["x"]) + pair[0] * pair[1]


def test_calibration_from_a_generator_with_nested_inputs():
    inputs = ({"x": X}, (torch.ones(4), torch.ones(4)))
    given = (({"x": X * k}, (torch.ones(4), torch.ones(4))) for k in (1, 2))
    program = coreai_torch.convert(Named(), inputs, precision="float16", calibration=given)
    assert program.precision_report.islands == ()
    options = Precision(calibration=iter([(X,)]))
    assert list(options.calibration) == list(options.calibration)


def test_dynamic_sizes_with_calibration_of_several_sizes():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    shapes = {"input": {0: torch.export.Dim("n", min=1, max=64)}}
    given = [(torch.randn(n, 8),) for n in (1, 5, 64)]
    program = coreai_torch.convert(
        model, (X,), dynamic_shapes=shapes, precision="float16", calibration=given
    )
    (got,) = results(program, input=torch.ones(7, 8))
    torch.testing.assert_close(got, model(torch.ones(7, 8)), rtol=1e-2, atol=1e-2)


def test_unknown_module_gets_a_suggestion():
    model = nn.Sequential()
    model.add_module("encoder", nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()))
    with pytest.raises(errors.ConversionError, match=r"did you mean 'encoder\.0'"):
        coreai_torch.convert(model, (X,), precision="float16", keep=["encodr.0"])
    program = coreai_torch.convert(model, (X,), precision="float16", keep=["encoder"], verify=False)
    kept = {island.op for island in program.precision_report.islands}
    assert kept == {"linear.default", "sigmoid.default"}


class Tiny(nn.Module):
    """Values around 1e-9 between two products, which float16 rounds to zero."""

    def forward(self, x):
        return (x * 1e-9) * 1e9 + 1


def test_underflow_is_a_reason():
    program = coreai_torch.convert(Tiny(), (X + 3,), precision="float16", calibration=[(X + 3,)])
    reasons = [island.reason for island in program.precision_report.islands]
    assert any("underflow" in reason for reason in reasons)
    assert program.precision_report.error_after < 1e-2


def test_weights_beyond_float16_stay_in_float32():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, eps=0.0))
    with torch.no_grad():
        model[0].weight.mul_(1e6)
    program = coreai_torch.convert(model, (X,), precision="float16", calibration=[(X,)])
    reasons = [island.reason for island in program.precision_report.islands]
    assert any("overflow" in reason for reason in reasons)


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, image):
        return self.last(self.first(image).relu()).mean((2, 3))


def test_parts_in_half_precision_take_images(tmp_path):
    image = torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8)
    model, x = Pixels(), image.float() / 255
    options = {"images": {"image": ImageInput(scale=1 / 255)}, "precision": "float16"}
    options["calibration"] = [(x,)]
    coreai_torch.split(model, (x,), parts=2, output=tmp_path / "parts", **options)
    with coreai_torch.load_parts(tmp_path / "parts") as parts:
        port = image.permute(0, 2, 3, 1) if parts.inputs["image"].shape[-1] == 3 else image
        (got,) = parts(port.contiguous()).values()
    torch.testing.assert_close(got.float(), model(x), rtol=2e-2, atol=2e-2)


def test_command_line_keeps_modules_and_prints_json(tmp_path, monkeypatch, capsys):
    from coreai_torch.cli.app import main

    monkeypatch.chdir(tmp_path)
    for k in (1, 2):
        np.savez(f"typical{k}.npz", input=np.full((4, 8), 300 * k, np.float32))
    text = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
    text += "    def forward(self, input):\n        return torch.log1p(input * input)\n"
    (tmp_path / "models.py").write_text(text)
    command = ["convert", "models.py:Net", "-i", "input=f32[4,8]", "--precision", "float16"]
    files = ["--calibration", "typical1.npz", "--calibration", "typical2.npz"]
    for more in (["--keep", "auto"], ["--keep", "aten.mul", "--keep", "aten.log1p"]):
        with pytest.raises(SystemExit) as stop:
            main([*command, *files, *more, "-o", "net.aimodel", "--json"])
        assert stop.value.code == 0
        found = json.loads(capsys.readouterr().out, parse_constant=lambda name: 1 / 0)
        assert found["precision"]["islands"]
    with pytest.raises(SystemExit) as stop:
        main([*command, *files, "--keep", "aten.mull", "-o", "net.aimodel"])
    assert stop.value.code != 0
    assert "did you mean 'aten.mul" in capsys.readouterr().err
