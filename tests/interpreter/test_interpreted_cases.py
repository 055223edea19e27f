"""Run every case of every lowering with `to_torch`, and compare with eager torch."""

from __future__ import annotations

import case_runner
import pytest

from coreai_torch import to_torch

# The values of the cases fit 32 bits; other tests cover the warning.
pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")

EVERY = 31  # the fast run tries one case in 31


def check(entry, case, *, dynamic):
    case_runner.check(entry, case, dynamic=dynamic, run=run_by_torch)


def run_by_torch(program, feeds):
    return to_torch(program).function("main")(feeds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "case", "sizes"), [row for one in case_runner.ALL for row in case_runner.sized(one)]
)
def test_case(entry, case, sizes):
    check(entry, case, dynamic=sizes == "dynamic")


@pytest.mark.parametrize(("entry", "case"), case_runner.ALL[::EVERY])
def test_some_cases(entry, case):
    check(entry, case, dynamic=False)
