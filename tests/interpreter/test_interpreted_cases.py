"""Every case of every lowering, run by torch from the converted program, against eager torch."""

from __future__ import annotations

import case_runner
import pytest

from coreai_torch import to_torch

# The values of the cases fit 32 bits; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")

EVERY = 31  # one case in so many is tried in the fast run


def check(entry, case, *, dynamic):
    model = case_runner.CaseModel(entry.target, case)
    if dynamic and case.static_only:
        pytest.skip(f"static sizes only: {case.static_only}")
    if dynamic and not any(
        t.dim() and not f for t, f in zip(model.feeds, model.fixed, strict=True)
    ):
        pytest.skip("no size of this case can vary")
    exported, program = case_runner.convert(model, dynamic=dynamic)
    names = [s.arg.name for s in exported.graph_signature.input_specs if s.target is None]
    feeds = dict(zip(names, model.feeds, strict=True))
    want = case_runner._outputs(model(*model.feeds))
    for optimized in (False, True):
        if optimized:
            program.optimize()
        got = list(to_torch(program).function("main")(feeds).values())
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            case_runner.compare(g, w, case.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["static", "dynamic"])
@pytest.mark.parametrize(("entry", "case"), case_runner.ALL)
def test_case(entry, case, sizes):
    check(entry, case, dynamic=sizes == "dynamic")


@pytest.mark.parametrize(("entry", "case"), case_runner.ALL[::EVERY])
def test_some_cases(entry, case):
    check(entry, case, dynamic=False)
