"""Cases that travel together are judged one by one."""

from __future__ import annotations

from types import SimpleNamespace

import companies
import pytest
import torch

from coreai_torch.errors import UnsupportedOpError
from coreai_torch.lowering.cases import case, f32

aten = torch.ops.aten
SUM = SimpleNamespace(target=aten.add.Tensor), case(f32(2, 3), f32(2, 3))
ROOT = SimpleNamespace(target=aten.exp.default), case(f32(4))
DRAWN = SimpleNamespace(target=aten.bernoulli.default), case(f32(2, low=0, high=1))


class Unsteady:
    """Adds one more at every call, so that no program does what torch did."""

    __name__ = "unsteady"

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


def travelled(*members):
    company = companies.Company()
    company.travel(list(members))
    return company


def test_all_arrive_with_one_program(monkeypatch):
    company = travelled(SUM, ROOT)
    monkeypatch.setattr(companies.case_runner, "check", None)  # none of them is tried alone
    company.check(*SUM)
    company.check(*ROOT)


def test_an_error_is_that_of_its_case_alone():
    company = travelled(SUM, DRAWN, ROOT)
    company.check(*SUM)
    company.check(*ROOT)
    with pytest.raises(UnsupportedOpError, match="random numbers"):
        company.check(*DRAWN)


def test_a_wrong_number_is_that_of_its_case_alone():
    wrong = SimpleNamespace(target=Unsteady()), case(f32(2))
    company = travelled(SUM, wrong, ROOT)
    company.check(*SUM)
    company.check(*ROOT)
    with pytest.raises(AssertionError, match="not close"):
        company.check(*wrong)


def test_what_is_right_only_alone_fails(monkeypatch):
    def quarrel(journey, **options):
        if isinstance(journey, companies.Together):
            raise RuntimeError("not beside that one")
        return found(journey, **options)

    found = companies.case_runner.results
    monkeypatch.setattr(companies.case_runner, "results", quarrel)
    company = travelled(SUM, ROOT)
    with pytest.raises(AssertionError, match="right alone, but beside others: RuntimeError: not"):
        company.check(*SUM)


def test_cases_of_which_a_process_died_are_tried_alone(tmp_path, monkeypatch):
    tests = [
        SimpleNamespace(
            callspec=SimpleNamespace(
                params={"company": "lowered-0", "sizes": "static", "entry": entry, "case": one}
            )
        )
        for entry, one in (SUM, ROOT)
    ]
    (tmp_path / "lowered-0").touch()
    monkeypatch.setattr(companies.Company, "travel", None)
    companies.Companies(tests, tmp_path).check("lowered-0", *SUM, "static")
