"""Half precision together with other options of a conversion."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import ExternalizeSpec, TorchConverter, errors, get_decomp_table, to_torch
from coreai_torch.precision import Precision
from coreai_torch.report import summarize

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.CalibrationWarning")
X = torch.linspace(-1, 1, 32).reshape(4, 8)


class Norm(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.weight, self.eps, self.scale = nn.Parameter(torch.ones(8)), 1e-6, scale

    def forward(self, x):
        x = x * self.scale
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight


class Model(nn.Module):
    """Norms between products; values up to `scale` within one of them."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.norms = nn.ModuleList([Norm(), Norm(scale)])

    def forward(self, x):
        return self.last(self.norms[1](self.first(self.norms[0](x))))


def results(program, name="main", **inputs):
    module = to_torch(program)
    return list(module(inputs).values()) if name == "main" else module.function(name)(inputs)


SPEC = ExternalizeSpec(Norm, composite_op_name="rms_norm", composite_attrs=["eps"])


@pytest.mark.parametrize("scale", [1.0, 3e5])
@pytest.mark.parametrize("spec", [Norm, SPEC], ids=["boundary", "composite"])
def test_externalized_modules_stay_separate_graphs(spec, scale):
    model = Model(scale)
    options = {"externalize_modules": [spec], "precision": "float16", "calibration": [(X,)]}
    program = coreai_torch.convert(model, (X,), **options)
    report = program.precision_report
    islands = {island.node for island in report.islands}
    assert bool(islands) == (scale > 1)
    assert str(program).count("coreai.invoke") == 2
    (got,) = results(program, x=X)
    torch.testing.assert_close(got, model(X), rtol=1e-2, atol=1e-2)


def test_composites_take_one_dtype():
    program = coreai_torch.convert(
        Model(3e5), (X,), externalize_modules=[SPEC], precision="float16", calibration=[(X,)]
    )
    signatures = [line for line in str(program).splitlines() if "composite_declaration" in line]
    assert len(signatures) == 2
    for line in signatures:
        assert ("xf16" in line) != ("xf32" in line)


def test_converter_externalizes_in_half_precision():
    converter = TorchConverter(precision=Precision(calibration=[(X,)]))

    def export(module):
        return torch.export.export(module, (X,)).run_decompositions(get_decomp_table())

    program = converter.add_pytorch_module(Model(), export, [Norm]).to_coreai()
    assert str(program).count("coreai.invoke") == 2
    assert program.precision_report.islands == ()


class Squared(nn.Module):
    """Overflows in float16 if there are many rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 64, bias=False)

    def forward(self, x):
        return torch.log1p(self.inner(x).abs().sum() * 150)


SIZES = [(2, 8), (64, 8)]


def test_sizes_have_the_same_islands_and_share_weights():
    model, x = Squared(), torch.ones(2, 8)
    program = coreai_torch.convert(model, (x,), sizes=SIZES, precision="float16")
    small, large = program.precision_report
    assert large.error_before == float("inf")
    assert small.error_before < small.limit
    assert {i.node for i in small.islands} == {i.node for i in large.islands} != set()
    assert summarize(program).weights["f16"][1] < 2 * model.inner.weight.numel() * 2


def test_calibration_belongs_to_the_entry_of_its_size():
    model, x = Squared(), torch.ones(2, 8)
    options = {"sizes": SIZES, "precision": "float16", "verify": False}
    given = ((value,) for value in (x * 1e4, torch.ones(64, 8) / 64))
    program = coreai_torch.convert(model, (x,), calibration=given, **options)
    small, large = program.precision_report
    assert small.error_before == float("inf")
    assert large.error_before < large.limit
    with pytest.raises(errors.ConversionError, match=r"has sizes \[\(3, 8\)\]"):
        coreai_torch.convert(model, (x,), calibration=[(torch.ones(3, 8),)], **options)


@pytest.mark.parametrize("half_ports", [False, True])
def test_verify_compares_with_the_half_precision_model(half_ports):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))
    precision = Precision("float16", calibration=[(X,)], half_ports=half_ports)
    verdict = coreai_torch.verify(model, None, (X,), converter=TorchConverter(precision=precision))
    assert verdict.ok
    program = coreai_torch.convert(
        model, (X,), precision="float16", half_ports=half_ports, verify=False
    )
    converter = TorchConverter(precision=precision)
    assert coreai_torch.verify(model, program, (X,), converter=converter).ok


def test_verify_notices_a_wrong_half_precision_program():
    torch.manual_seed(0)
    model, other = nn.Linear(8, 4), nn.Linear(8, 4)
    converter = TorchConverter(precision=Precision(calibration=[(X,)]))
    program = coreai_torch.convert(other, (X,), precision="float16", verify=False)
    assert not coreai_torch.verify(model, program, (X,), converter=converter).ok
