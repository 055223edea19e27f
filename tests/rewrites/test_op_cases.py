"""Op cases with all rewrites on; `make rewrites` runs all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import runtime

import coreai_torch

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

# Ops whose lowerings emit rounding, masks, order, windows or attention inside.
NAMES = (
    *("aten.round.default", "aten.remainder.Tensor", "aten.argmax.default", "aten.topk.default"),
    *("aten.sort.default", "aten.pixel_shuffle.default", "aten.hardswish.default"),
    *("aten.logical_and.default", "aten.index_copy.default", "aten.convolution.default"),
    *("aten.scaled_dot_product_attention.default", "aten.scatter.src", "aten.floor.default"),
)


@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize("name", NAMES)
def test_case_keeps_its_numbers(name, monkeypatch):
    import case_runner

    (entry,) = (e for e in case_runner.registered() if str(e.target) == name)
    _check(entry, next(case for case in entry.cases if not case.void), monkeypatch)


def test_integers_of_4_bits_are_left_alone(monkeypatch):
    import case_runner

    (entry,) = (e for e in case_runner.registered() if str(e.target) == "coreai.quantize.default")
    case = next(c for c in entry.cases if "si4" in str(c.args) or "int4" in str(c.args))
    _check(entry, case, monkeypatch)


def _check(entry, case, monkeypatch):
    import case_runner

    original = coreai_torch.TorchConverter
    monkeypatch.setattr(
        case_runner.coreai_torch,
        "TorchConverter",
        lambda **given: original(**given | {"target": "any"}),
    )
    model = case_runner.CaseModel(entry.target, case)
    _, program = case_runner.convert(model, dynamic=False)
    program.optimize()
    names = [port.name for port in _inputs(program)]
    results = runtime.run(program, dict(zip(names, model.feeds, strict=True)))
    expected = case_runner.listed(model(*model.feeds))
    for got, want in zip(results.values(), expected, strict=True):
        case_runner.compare(got, want, case.tolerance)


def _inputs(program):
    from coreai_torch.report import summarize

    (function,) = summarize(program).functions
    return function.inputs
