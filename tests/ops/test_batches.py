"""Each case of a batch gets its own verdict."""

from __future__ import annotations

from types import SimpleNamespace

import batches
import pytest
import torch

from coreai_torch.errors import UnsupportedOpError
from coreai_torch.lowering.cases import case, f32

aten = torch.ops.aten
ADD = SimpleNamespace(target=aten.add.Tensor), case(f32(2, 3), f32(2, 3))
EXP = SimpleNamespace(target=aten.exp.default), case(f32(4))
RANDOM = SimpleNamespace(target=aten.bernoulli.default), case(f32(2, low=0, high=1))


class Counter:
    """Add one more at every call, so that no program agrees with torch."""

    __name__ = "counter"

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


def ran(*members):
    batch = batches.Batch()
    batch.run(list(members))
    return batch


def test_one_program_checks_all_cases(monkeypatch):
    batch = ran(ADD, EXP)
    monkeypatch.setattr(batches.case_runner, "check", None)  # no case runs alone
    batch.check(*ADD)
    batch.check(*EXP)


def test_only_the_case_that_raises_fails():
    batch = ran(ADD, RANDOM, EXP)
    batch.check(*ADD)
    batch.check(*EXP)
    with pytest.raises(UnsupportedOpError, match="random numbers"):
        batch.check(*RANDOM)


def test_only_the_case_with_wrong_numbers_fails():
    wrong = SimpleNamespace(target=Counter()), case(f32(2))
    batch = ran(ADD, wrong, EXP)
    batch.check(*ADD)
    batch.check(*EXP)
    with pytest.raises(AssertionError, match="not close"):
        batch.check(*wrong)


def test_case_that_passes_only_alone_fails(monkeypatch):
    def fail_combined(model, **options):
        if isinstance(model, batches.Combined):
            raise RuntimeError("not in a batch")
        return results(model, **options)

    results = batches.case_runner.results
    monkeypatch.setattr(batches.case_runner, "results", fail_combined)
    batch = ran(ADD, EXP)
    message = "passes alone, but fails in a batch: RuntimeError: not"
    with pytest.raises(AssertionError, match=message):
        batch.check(*ADD)


def test_cases_of_a_batch_that_crashed_run_alone(tmp_path, monkeypatch):
    tests = [
        SimpleNamespace(
            callspec=SimpleNamespace(
                params={"batch": "lowered-0", "sizes": "static", "entry": entry, "case": one}
            )
        )
        for entry, one in (ADD, EXP)
    ]
    (tmp_path / "lowered-0").touch()
    monkeypatch.setattr(batches.Batch, "run", None)
    batches.Batches(tests, tmp_path).check("lowered-0", *ADD, "static")
