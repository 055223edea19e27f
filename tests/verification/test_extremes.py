"""Differences at infinities and NaN only are named; `exact=True` removes them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter
from coreai_torch.ir import dialect


class _Clamped(nn.Module):
    def forward(self, x):
        return x.floor().clamp(0, 3)


X = torch.linspace(-2, 5, 12).reshape(3, 4)


def test_a_difference_at_infinite_inputs_only_is_named():
    verdict = coreai_torch.verify(_Clamped(), None, (X,))
    assert verdict.ok
    assert not verdict.failures
    (note,) = [line for line in str(verdict).splitlines() if "NaN only" in line]
    assert "clamp: differs at infinities and NaN only, which aten.floor.default treats" in note
    assert note.endswith("with exact=True (inputs infinite)")


@pytest.mark.parametrize("saved", [False, True])
def test_an_exact_program_has_no_difference_there(tmp_path, saved):
    exported = torch.export.export(_Clamped(), (X,))
    program = TorchConverter(exact=True).add_exported_program(exported).to_coreai()
    assert program.metadata["coreai_torch.form"] == {"exact": True}
    if saved:
        program.save_asset(tmp_path / "m.aimodel")
        program = tmp_path / "m.aimodel"
    verdict = coreai_torch.verify(_Clamped(), program, (X,))
    assert verdict.ok
    assert "infinite" in [trial.inputs for trial in verdict.trials]
    assert "NaN only" not in str(verdict)


def test_the_difference_of_a_program_called_exact_is_a_failure():
    exported = torch.export.export(_Clamped(), (X,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    program.metadata["coreai_torch.form"] = {"exact": True}
    verdict = coreai_torch.verify(_Clamped(), program, (X,))
    assert not verdict.ok
    assert {trial.inputs for trial in verdict.failures} == {"infinite"}


def test_a_difference_at_infinite_inputs_needs_an_op_that_explains_it():
    class Wrong(nn.Module):
        def forward(self, x):
            return x.clamp(0, 3)

    class Model(nn.Module):
        def forward(self, x):
            return torch.where(x.isinf(), 1.0, x.clamp(0, 3))

    exported = torch.export.export(Wrong(), (X,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    verdict = coreai_torch.verify(Model(), program, (X,))
    assert not verdict.ok


class _Beside(nn.Module):
    def forward(self, x):
        return x.floor().clamp(0, 3), torch.tanh(x)


def test_an_op_at_extremes_does_not_excuse_an_output_beside_it():
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::tanh", allow_override=True)
    def wrong_at_infinity(ctx, x):
        infinite = dialect.equal(x, dialect.like(x, torch.inf))
        return dialect.where(infinite, dialect.like(x, 0.5), dialect.tanh(x))

    verdict = coreai_torch.verify(_Beside(), None, (X,), converter=converter, locate=False)
    assert not verdict.ok
    assert {t.inputs for t in verdict.failures} == {"infinite"}
    assert coreai_torch.verify(_Beside(), None, (X,)).ok


class _Quotient(nn.Module):
    def forward(self, x, y):
        return x // y


class _Reciprocal(nn.Module):
    def forward(self, x):
        return (1 / x).floor(), x * 2


DIVISIONS = {
    "integer by float": (_Quotient(), (torch.tensor([1, 4]), torch.tensor([-2.0, 3.0]))),
    "float by integer": (_Quotient(), (torch.tensor([1.0, 4.0]), torch.tensor([-2, 3]))),
    "rounded reciprocal": (_Reciprocal(), (torch.tensor([1.0, 4.0]),)),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", DIVISIONS)
def test_a_division_by_zero_of_generated_inputs_is_named(name, exact):
    model, args = DIVISIONS[name]
    verdict = coreai_torch.verify(model, None, args, converter=TorchConverter(exact=exact))
    assert verdict.ok, str(verdict)
    assert "zeros" in {trial.inputs for trial in verdict.trials}
    assert ("NaN only" in str(verdict)) is not exact


def test_a_division_by_zero_of_the_given_inputs_is_a_failure_that_names_exact():
    verdict = coreai_torch.verify(_Reciprocal(), None, (torch.tensor([0.0, 4.0]),))
    assert not verdict.ok
    assert "aten.floor.default computes with infinities, NaN or a division by zero" in str(verdict)
    assert "with exact=True only" in str(verdict)


def test_an_op_that_meets_no_extreme_explains_nothing():
    class Wrong(nn.Module):
        def forward(self, x):
            return x.floor(), 2 * x + (x == 0)

    class Model(nn.Module):
        def forward(self, x):
            return x.floor(), 2 * x

    exported = torch.export.export(Wrong(), (X,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    verdict = coreai_torch.verify(Model(), program, (X,))
    assert {trial.inputs for trial in verdict.failures} == {"zeros"}


def test_finite_inputs_are_compared_as_before():
    exported = torch.export.export(nn.ReLU(), (X,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert not coreai_torch.verify(_Clamped(), program, (X,)).ok
