"""Forms of single cases, taken out of a program with several, and the files that store them."""

from __future__ import annotations

import pytest
import torch

import coreai_torch
from coreai_torch.asset.reading import read
from coreai_torch.targets.lint import RULES

from . import converting, reasons, stored
from .batched import findings, forms
from .histograms import histogram
from .words import ops, words

STORED = stored.read()
needs_data = pytest.mark.skipif(not stored.are_comparable(), reason="forms of another torch")


class Several(torch.nn.Module):
    def forward(self, x, y):
        return x.flip(0), y.exp() + y.relu(), x.roll(1, 0).sin()


def _forms(module, args, outputs):
    return forms(coreai_torch.convert(module, args, verify=False), outputs)


def test_each_case_has_the_ops_that_its_outputs_depend_on():
    found = _forms(Several(), (torch.ones(4), torch.ones(4)), [1, 1, 1])
    assert [ops(one) for one in found] == [
        {"reverse": 1},
        {"add": 1, "exp": 1, "relu": 1},
        {"concat": 1, "sin": 1, "slice": 2},
    ]


def test_outputs_of_one_case_share_its_ops():
    first, second = _forms(Several(), (torch.ones(4), torch.ones(4)), [2, 1])
    assert ops(first) == {"reverse": 1, "add": 1, "exp": 1, "relu": 1}
    assert ops(second) == {"concat": 1, "sin": 1, "slice": 2}


def test_a_composite_is_one_op_and_its_body_is_counted_apart():
    (found,) = _forms(torch.nn.LayerNorm(4), (torch.ones(2, 4),), [1])
    assert found.startswith("[layer_norm] of ")
    assert ops(found) == {"[layer_norm]": 1}


def test_findings_are_part_of_the_form():
    (found,) = _forms(Gather(), (torch.ones(4, 3), torch.zeros(2, dtype=torch.int32)), [1])
    assert "HAZ52" in findings(found)


class Gather(torch.nn.Module):
    def forward(self, x, i):
        return x[i]


def test_a_file_has_a_line_for_each_form_of_an_op(tmp_path):
    given = {"flip-0": "reverse", "flip-1": "reverse", "flip-3": "reverse", "flip-2": "no op"}
    file = tmp_path / "shape.txt"
    stored.write(file, {**given, "abs-0": "abs"})
    assert file.read_text() == "abs 0: abs\nflip 0-1,3: reverse\nflip 2: no op\n"
    assert dict(stored.read_file(file)) == {**given, "abs-0": "abs"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["no op"], "no op"),
        (["exp", "no op", "exp | HAZ04"], "one op"),
        (["[gelu] of 9"], "composite"),
        (["cast, mul 2", "mul"], "composed of 1 to 3"),
        (["add 3", "mul 3"], "composed of 3"),
        (["while", "add"], "loop"),
    ],
)
def test_words_describe_all_cases_of_an_op(given, said):
    assert words(given) == said


@needs_data
def test_every_case_has_a_stored_form_in_the_file_of_its_family():
    wanted: dict[str, set[str]] = {}
    for members in converting.static_batches().values():
        for member in members:
            family = stored.family(member[0].fn.__module__)
            wanted.setdefault(family, set()).add(converting.name(member))
    files = {file.stem: set(dict(stored.read_file(file))) for file in stored.FOLDER.glob("*.txt")}
    assert files == wanted, "run python -W ignore -m tests.forms --record"


def _pairs():
    return {
        (code, name.rpartition("-")[0]) for name, one in STORED.items() for code in findings(one)
    }


def test_every_finding_has_a_reason_or_is_listed_as_unexplained():
    listed = reasons.unexplained()
    without = {(code, op) for code, op in _pairs() if not reasons.reason(code, op)}
    assert sorted(f"{c} {op}" for c, op in without if op not in listed.get(c, ())) == []


@needs_data
def test_unexplained_findings_still_exist_and_have_no_reason():
    listed = {(code, op) for code, ops in reasons.unexplained().items() for op in ops}
    assert sorted(listed - _pairs()) == []
    assert sorted(pair for pair in listed if reasons.reason(*pair)) == []


def test_every_reason_belongs_to_a_rule():
    assert set(reasons.REASONS) <= {rule.code for rule in RULES}


def test_histograms_leave_out_constants():
    program = coreai_torch.convert(torch.nn.Linear(2, 3), (torch.ones(1, 2),), verify=False)
    found = histogram(read(program))
    assert found.ops
    assert not {"constant", "output"} & set(found.ops)
