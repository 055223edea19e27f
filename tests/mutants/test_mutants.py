"""The harness that sabotages lowerings: kinds, what matters, and the outcome of some mutants."""

from __future__ import annotations

import json

import pytest
import torch

from . import judging, page, run
from .kinds import KINDS
from .programs import MODELS, Unit, units
from .truth import is_significant

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")


@pytest.fixture
def by_interpreter(monkeypatch):
    monkeypatch.setattr(judging.engines, "RunByTorch", judging.InProcess)


def outcomes(unit):
    return {o.kind: o.outcome for o in run.run(unit)}


def test_every_kind_is_applied_to_a_sum_along_an_axis(by_interpreter):
    found = outcomes(Unit("cumsum", "aten::cumsum", 0, "alone"))
    assert found.pop("none") == run.HONEST
    assert found.pop("dropped") == run.NOT_APPLICABLE
    assert found.pop("axis") in (run.CAUGHT, run.NOT_APPLICABLE)
    assert set(found) == set(KINDS) - {"dropped", "axis"}
    assert set(found.values()) == {run.CAUGHT}


def test_an_ignored_argument_is_caught(by_interpreter):
    found = outcomes(Unit("addcmul", "aten::addcmul", 1, "alone"))
    assert found["dropped"] in (run.CAUGHT, run.NOT_APPLICABLE)
    assert found["none"] == run.HONEST


def test_units_cover_every_op_with_a_case_and_enough_models():
    from coreai_torch.lowering.registry import BUILTIN, key

    every = units()
    named = {unit.op for unit in every}
    with_cases = {
        key(entry.target) for entry in BUILTIN if any(not case.void for case in entry.cases)
    }
    assert with_cases <= named
    assert len(MODELS) >= 6
    assert len({unit.name for unit in every}) == len(every)


X = torch.tensor([1.0, 1e4, 0.5])


@pytest.mark.parametrize(
    ("change", "significant"),
    [
        (torch.tensor([0.0, 0.0, 0.0]), False),
        (torch.tensor([1e-7, 1e-3, 0.0]), False),
        (torch.tensor([1e-3, 0.0, 0.0]), True),
        (torch.tensor([0.0, 1.0, 0.0]), True),
        (torch.tensor([0.0, 0.0, torch.nan]), True),
    ],
)
def test_a_change_matters_beyond_the_noise_of_its_element(change, significant):
    assert is_significant([X + change], [X], [X], [X.double()]) is significant


def test_an_element_that_is_exact_by_chance_has_the_noise_of_its_neighbours():
    wide = torch.cat([torch.tensor([1e-5]), torch.linspace(0.5, 1, 32)]).double()
    error = torch.full((33,), 1e-7).double()
    error[0] = 5e-9
    program = wide + error
    change = torch.zeros(33).double()
    change[0] = 1e-7
    outputs = [t.float() for t in (program + change, program, program)]
    assert not is_significant(*([t] for t in outputs), [wide])
    change[0] = 1e-5
    assert is_significant([(program + change).float()], [outputs[1]], [outputs[2]], [wide])


def test_noise_of_half_precision_hides_a_small_change():
    x = torch.linspace(-1, 1, 64).half()
    assert not is_significant([(x * 1.001).half()], [x], [x], [x.double()])
    assert is_significant([(x * 1.1).half()], [x], [x], [x.double()])


def test_integers_have_no_noise():
    x = torch.arange(4)
    assert is_significant([x + 1], [x], [x], None)
    assert not is_significant([x.clone()], [x], [x], None)


@pytest.mark.stored
def test_the_page_shows_the_stored_score():
    assert page.section() in page.DOCS.read_text()
    assert json.loads(page.SCORE.read_text())["measured"]["commit"]
