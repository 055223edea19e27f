"""Every entry point captures a model in the same way: what one accepts, all accept."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn
from torch.nn import functional

import coreai_torch
from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture import prepare as preparing
from coreai_torch.capture.prepare import prepare
from coreai_torch.cli.model_source import Loaded
from coreai_torch.converter import capture_rules
from coreai_torch.errors import (
    ArgumentTypeError,
    ConversionError,
    ExportError,
    NotDecomposedError,
    UnsupportedOpError,
)
from coreai_torch.verification import TrialPlan, verify

QUICK = {"trials": TrialPlan(seeds=0, sizes=0, edges=False, steps=1), "locate": False}
X = torch.linspace(-2, 2, 12).reshape(4, 3)


class Huber(nn.Module):
    def forward(self, x):
        return functional.huber_loss(x, x * 2, delta=0.5)


class Covariance(nn.Module):
    def forward(self, x):
        return torch.cov(x)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x) + self.count


class Random(nn.Module):
    def forward(self, x):
        return x + torch.rand(4, 3)


class Conditional(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


class PaddedByBuffer(nn.Module):
    """Read a size from a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("width", torch.tensor(2))

    def forward(self, x):
        width = self.width.item()
        return functional.pad(x, (width, width)) if width > 1 else x


def sources(model):
    """A model, and the forms in which its exported program may be given."""
    raw = torch.export.export(model, (X,))
    return {
        "module": (model, (X,)),
        "undecomposed": (raw, None),
        "without composite ops": (raw.run_decompositions({}), None),
        "torch's table": (raw.run_decompositions(), None),
        "our table": (raw.run_decompositions(get_decomp_table()), None),
    }


def by_convert(source, args):
    coreai_torch.convert(source, args, verify=False)


def by_verify(source, args):
    assert verify(source, None, args, **QUICK).ok


def by_command_line(source, args):
    converter = TorchConverter()
    program = Loaded(source, args).capture(converter)
    converter.add_exported_program(program).to_coreai()


ENTRY_POINTS = {"convert": by_convert, "verify": by_verify, "command line": by_command_line}


@pytest.mark.parametrize("entry", ENTRY_POINTS)
@pytest.mark.parametrize("model", [Huber, Writer])
def test_every_entry_point_accepts_every_form_of_a_model(entry, model):
    torch.manual_seed(0)
    for source, args in sources(model().eval()).values():
        ENTRY_POINTS[entry](source, args)


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_every_entry_point_reports_the_same_unsupported_op(entry):
    for source, args in sources(Random()).values():
        with pytest.raises(UnsupportedOpError, match=r"no lowering for aten.rand.default, used"):
            ENTRY_POINTS[entry](source, args)


@pytest.mark.parametrize("entry", ENTRY_POINTS)
@pytest.mark.parametrize(
    ("source", "args", "error", "message"),
    [
        (Conditional(), (X,), ExportError, "could not export Conditional"),
        (Huber(), None, ExportError, "no arguments to export Huber"),
        (Huber(), X, ExportError, "args is one tensor"),
        ("model", (X,), ArgumentTypeError, "an nn.Module or an ExportedProgram, not a str"),
    ],
)
def test_every_entry_point_raises_the_same_error(entry, source, args, error, message):
    with pytest.raises(error, match=message):
        ENTRY_POINTS[entry](source, args)


@pytest.mark.parametrize("entry", [coreai_torch.convert, verify])
def test_dynamic_shapes_of_an_exported_program_are_rejected(entry):
    program = torch.export.export(Huber(), (X,))
    with pytest.raises(ExportError, match="dynamic_shapes is for a model"):
        entry(program, dynamic_shapes=({0: torch.export.Dim("rows")},))


def test_add_exported_program_asks_for_a_decomposition_where_convert_decomposes():
    forms = sources(Huber())
    for name in ("undecomposed", "without composite ops"):
        with pytest.raises(NotDecomposedError, match=r"call exported_program.run_decompositions"):
            TorchConverter().add_exported_program(forms[name][0])
    for name in ("torch's table", "our table"):
        TorchConverter().add_exported_program(forms[name][0]).to_coreai()


def test_verify_and_convert_agree_on_the_names_of_outputs(tmp_path):
    program = torch.export.export(Huber(), (X,)).run_decompositions({})
    path = tmp_path / "huber.aimodel"
    coreai_torch.convert(program, verify=False, output=path)
    assert verify(program, path, **QUICK).ok


def test_a_decomposed_program_is_not_decomposed_again(monkeypatch):
    program = torch.export.export(Huber(), (X,)).run_decompositions(get_decomp_table())
    monkeypatch.setattr(preparing, "decompose", None)
    rules = capture_rules(None)
    assert prepare(program, rules=rules).program is program


def test_a_model_is_exported_and_decomposed_once(monkeypatch):
    calls = []

    def count(name):
        original = getattr(preparing, name)
        monkeypatch.setattr(preparing, name, lambda *a: calls.append(name) or original(*a))

    count("export")
    count("decompose")
    coreai_torch.convert(Writer().eval(), (X,), verify=False)
    assert calls == ["export", "decompose"]


def test_the_reference_is_the_model_or_the_program_as_given():
    model = Huber()
    program = torch.export.export(model, (X,))
    rules = capture_rules(None)
    assert prepare(model, (X,), rules=rules).reference is model
    torch.testing.assert_close(prepare(program, rules=rules).reference(X), model(X))


def _run(program):
    (result,) = runtime.run(program, {"x": X}).values()
    return result


@pytest.mark.parametrize("strict", [False, True])
def test_add_pytorch_module_applies_the_export_rewrites(strict):
    def export(module):
        program = torch.export.export(module, (X,), strict=strict)
        return program.run_decompositions(get_decomp_table())

    with pytest.raises(Exception, match=r"aten\.equal\.default"):
        export(Covariance())
    program = TorchConverter().add_pytorch_module(Covariance(), export).to_coreai()
    torch.testing.assert_close(_run(program), torch.cov(X), rtol=1e-5, atol=1e-5)


def test_add_pytorch_module_gives_a_model_its_own_constants():
    def export(module):
        return torch.export.export(module, (X,)).run_decompositions(get_decomp_table())

    model = PaddedByBuffer()
    program = TorchConverter().add_pytorch_module(model, export).to_coreai()
    torch.testing.assert_close(_run(program), model(X))


def test_an_error_of_export_fn_is_raised_as_it_is_and_export_fn_runs_once():
    calls = []

    def export(module):
        calls.append(module)
        raise KeyError("mistake")

    with pytest.raises(KeyError, match="mistake"):
        TorchConverter().add_pytorch_module(Huber(), export)
    assert len(calls) == 1


def test_the_op_of_a_registered_lowering_is_not_decomposed():
    ran = []
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::huber_loss", allow_override=True)
    def huber_loss(values_map, node, loc):
        ran.append(node.target)
        raise ConversionError("the registered lowering ran")

    for source, args in list(sources(Huber()).values())[:3]:
        with pytest.raises(ConversionError, match="the registered lowering ran"):
            coreai_torch.convert(source, args, converter=converter, verify=False)
        with pytest.raises(ConversionError, match="the registered lowering ran"):
            verify(source, None, args, converter=converter, **QUICK)
    assert ran == [torch.ops.aten.huber_loss.default] * 6
