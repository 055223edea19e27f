"""The float64 reference is the model itself, and decides where rounding errors decide in torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture.prepare import prepare
from coreai_torch.converter import capture_rules
from coreai_torch.numerics.compare import ILL_CONDITIONED, Allowed, as_accurate, compare
from coreai_torch.verification import Subject, TrialPlan
from coreai_torch.verification.float64_reference import run_exact

aten = torch.ops.aten
FEW = TrialPlan(seeds=1, sizes=0, edges=False)


class Gelu(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)


def test_wrong_decomposition_is_rejected():
    wrong = {aten.gelu.default: lambda x, approximate="none": x * torch.sigmoid(1.702 * x)}
    converter = TorchConverter(decompositions=wrong)
    verdict = coreai_torch.verify(
        Gelu(), None, (torch.randn(8),), converter=converter, engine="torch", trials=FEW
    )
    assert not verdict.ok


def test_table_decomposes_multilabel_margin_loss_as_eager_torch():
    class Loss(nn.Module):
        def forward(self, x, y):
            return nn.functional.multilabel_margin_loss(x, y, reduction="none")

    given = torch.randn(2, 4), torch.tensor([[1, 0, -1, 3], [-1, 0, 1, 2]])
    program = torch.export.export(Loss(), given).run_decompositions(get_decomp_table())
    torch.testing.assert_close(program.module()(*given), Loss()(*given))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        made = torch.zeros(3)
        made[1:] = self.total[1:]
        return made / 3, self.total.half()


def subject_of(model, *args):
    captured = prepare(model, args, rules=capture_rules(TorchConverter()))
    return Subject(captured.program, captured.plan, captured.reference)


def test_states_continue_in_float64():
    x = torch.tensor([0.1, 0.2, 0.3])
    subject = subject_of(Counter(), x)
    calls = subject.calls(lambda step: [x], 3)
    exact = run_exact(subject, calls)
    want = 3 * x.double()
    assert torch.equal(exact.states[0], x.double() + x.double() + x.double())
    torch.testing.assert_close(exact.outputs[0], torch.cat([want[:1] * 0, want[1:] / 3]))
    torch.testing.assert_close(exact.outputs[1], want)  # not rounded to half precision
    assert subject.reference.total.eq(0).all()  # the model is not changed


def test_model_that_fails_in_float64_has_no_reference():
    class Strict(nn.Module):
        def forward(self, x):
            assert x.dtype == torch.float32
            return x + 1

    subject = subject_of(Strict(), torch.ones(2))
    assert run_exact(subject, subject.calls(lambda step: [torch.ones(2)], 1)) is None


def judged(got, want, exact, limit):
    got, want = (torch.tensor(v, dtype=torch.float32) for v in (got, want))
    limit = torch.tensor(limit, dtype=torch.float64)
    exact = torch.tensor(exact, dtype=torch.float64)
    return compare("y", got, want, as_accurate(got, want, exact, Allowed(limit)))


LIMIT = [1e-6] * 7 + [2.0]  # the analysis expects that some element jumps


def test_other_elements_may_jump_if_as_many_jump_in_torch():
    exact = [1.0] * 8
    error = judged([1, 1, 1, 5, 1, 1, 1, 1], [5, 1, 1, 1, 1, 1, 1, 1], exact, LIMIT)
    assert error.ok
    assert error.note == ILL_CONDITIONED
    assert ILL_CONDITIONED in str(error)


def test_float64_excuses_no_error_that_rounding_does_not_explain():
    exact, jumped = [1.0] * 8, [5, 1, 1, 1, 1, 1, 1, 1]
    narrow = [1e-6] * 8  # no element jumps: torch computes another function in float64
    assert not judged([1, 1, 1, 5, 1, 1, 1, 1], jumped, exact, narrow).ok
    assert not judged([9, 1, 1, 1, 1, 1, 1, 1], jumped, exact, narrow).ok  # twice as far
    assert not judged(exact, jumped, exact, narrow).ok  # as float64, but not as torch
    assert judged(exact, [1 + 1e-4, *exact[1:]], exact, narrow).ok  # torch lost half its digits
    assert judged(exact, [float("inf"), *exact[1:]], exact, narrow).ok  # torch overflows


@pytest.mark.parametrize(
    ("got", "want", "limit"),
    [
        ([1, 1, 1, 5, 1, 1, 1, 1], [1] * 8, LIMIT),  # torch is right
        ([5, 5, 5, 5, 1, 1, 1, 1], [5, 1, 1, 1, 1, 1, 1, 1], LIMIT),  # more elements jump
        ([1, 1, 1, 99, 1, 1, 1, 1], [5, 1, 1, 1, 1, 1, 1, 1], LIMIT),  # one jumps further
        (
            [5, 1, 1, 1, 1, 1, 1, 2],
            [5, 1, 1, 1, 1, 1, 1, 1],
            [2.0, *LIMIT[:6], 0.0],
        ),  # a moved element
    ],
)
def test_larger_errors_than_torch_are_rejected(got, want, limit):
    assert not judged(got, want, [1.0] * 8, limit).ok


def test_integers_with_ties_may_differ_as_often_as_torch():
    want, exact = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 4, 3])
    ties = torch.tensor([False, False, True, False])
    allowed = Allowed(torch.zeros(4), ties)
    for got, ok in (([2, 1, 4, 3], True), ([2, 1, 3, 4], True), ([4, 4, 4, 4], True)):
        found = torch.tensor(got, dtype=torch.int32)
        assert compare("i", found, want, as_accurate(found, want, exact, allowed)).ok is ok
    swapped = torch.tensor([4, 3, 2, 1])
    for got in ([3, 1, 4, 2], [9, 9, 9, 9]):  # one tie does not explain that torch differs in four
        found = torch.tensor(got, dtype=torch.int32)
        assert not compare("i", found, want, as_accurate(found, want, swapped, allowed)).ok
    many = torch.tensor([9, 9, 9, 9, 9], dtype=torch.int32)
    want, exact = torch.tensor([1, 2, 3, 4, 5]), torch.tensor([1, 2, 4, 3, 5])
    allowed = Allowed(torch.zeros(5), torch.tensor([False, False, True, False, False]))
    assert not compare("i", many, want, as_accurate(many, want, exact, allowed)).ok
