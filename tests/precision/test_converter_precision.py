"""`TorchConverter(precision=...)` stages programs in half precision."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter, errors, get_decomp_table
from coreai_torch.precision import Precision
from coreai_torch.report import summarize

X = torch.linspace(-1, 1, 32).reshape(4, 8)


def exported(model):
    return torch.export.export(model.eval(), (X,)).run_decompositions(get_decomp_table())


@pytest.mark.filterwarnings("ignore::coreai_torch.errors.CalibrationWarning")
def test_name_of_a_precision():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    program = TorchConverter(precision="float16").add_exported_program(exported(model)).to_coreai()
    assert program.precision_report.dtype == "float16"
    assert "f16" in summarize(program).weights
    (output,) = runtime.run(program, {"input": X}).values()
    torch.testing.assert_close(output, model(X), rtol=1e-2, atol=1e-2)


class Large(nn.Module):
    def forward(self, x):
        return torch.log(torch.exp(x) + 1) * 2


def test_calibration_finds_what_overflows():
    options = Precision("float16", calibration=[(X * 20,)], half_ports=True)
    program = TorchConverter(precision=options).add_exported_program(exported(Large())).to_coreai()
    assert [island.op for island in program.precision_report.islands]
    (function,) = summarize(program).functions
    assert function.inputs[0].dtype == "f16"


def test_example_inputs_alone_are_a_warning():
    with pytest.warns(errors.CalibrationWarning, match="example inputs alone"):
        TorchConverter(precision="bfloat16").add_exported_program(exported(nn.ReLU()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("int8", "precision is 'int8'"),
        (16, "precision is 16"),
        (Precision("f"), "precision is 'f'"),
    ],
)
def test_wrong_precision_is_rejected(given, message):
    with pytest.raises(errors.ConversionError, match=message):
        TorchConverter(precision=given)


def test_wrong_calibration_is_rejected():
    options = Precision(calibration=[(X, X)])
    with pytest.raises(errors.ConversionError, match="calibration has 2 inputs"):
        TorchConverter(precision=options).add_exported_program(exported(nn.ReLU()))


def test_convert_takes_the_precision_itself():
    with pytest.raises(errors.ConversionError, match="pass precision"):
        coreai_torch.convert(nn.ReLU(), (X,), converter=TorchConverter(precision="float16"))
