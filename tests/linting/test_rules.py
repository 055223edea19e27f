"""Each rule finds its construct, and not a similar program without it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import errors
from coreai_torch.targets.lint import RULES, lint, lint_program, rules_for
from coreai_torch.targets.lint.view import ProgramView

from . import made
from .cases import CASES, MORE_CASES, QUIET, X, converted


def found(program, ranges=None) -> set[str]:
    return {finding.code for finding in lint_program(program, ranges=ranges)}


@pytest.mark.parametrize("case", [*CASES, *MORE_CASES], ids=lambda case: case.code)
def test_rule_finds_the_hazard(case):
    assert case.code in found(case.hazard(), case.ranges[0])


@pytest.mark.parametrize("case", [*CASES, *MORE_CASES], ids=lambda case: case.code)
def test_rule_ignores_the_clean_program(case):
    assert case.code not in found(case.clean(), case.ranges[1])


@pytest.mark.parametrize(("code", "make"), QUIET, ids=[code for code, _ in QUIET])
def test_rule_is_quiet_where_it_does_not_apply(code, make):
    assert code not in found(make())


def test_every_rule_has_a_case():
    assert [case.code for case in CASES] == [rule.code for rule in RULES]
    assert len(RULES) >= 40


def test_every_rule_names_its_source():
    assert all(rule.source and rule.units and rule.hint for rule in RULES)


def test_ancestors_are_visited_once():
    type_ = made.tensor("f32", 4)
    sums = [made.op("add", (n, n), (n + 1,), (type_,)) for n in range(9)]
    (function,) = ProgramView(made.ops(*sums)).functions
    assert list(function.ancestors(sums[-1], ("add",), 8)) == sums[-2::-1]
    assert list(function.ancestors(sums[-1], ("add",), 1)) == [sums[-2], sums[-3]]


@pytest.mark.parametrize("target", [None, [], "npu", ["gpu", "npu"]])
def test_unknown_target_is_rejected(target):
    with pytest.raises(errors.ConversionError, match="is not a compute unit"):
        rules_for(target)


def test_target_selects_rules():
    program = converted(torch.round, X)()
    codes = {f.code for f in lint_program(program, rules_for("gpu"))}
    assert "HAZ11" in codes
    assert "HAZ11" not in {f.code for f in lint_program(program, rules_for("cpu"))}


def test_version_selects_rules():
    assert "HAZ35" in {rule.code for rule in rules_for(os="26.4")}
    assert "HAZ35" not in {rule.code for rule in rules_for(os="27.0")}
    assert len(rules_for(os=None)) == len(rules_for("any")) == len(RULES)


def test_dynamic_size_without_upper_bound_is_found():
    def codes(size):
        batch = torch.export.Dim("batch", min=1, max=size)
        shapes = {"dynamic_shapes": ({0: batch},), "verify": False}
        return {f.code for f in lint(coreai_torch.convert(nn.ReLU(), (X,), **shapes))}

    assert "HAZ58" in codes(None)
    assert "HAZ58" not in codes(8)


@pytest.mark.parametrize(
    ("options", "message"), [({"target": "npu"}, "compute unit"), ({"os": "new"}, "version")]
)
def test_wrong_options_are_rejected(options, message):
    with pytest.raises(errors.ConversionError, match=message):
        rules_for(**options)


def test_lint_reads_an_asset_and_sorts_errors_first(tmp_path):
    program = coreai_torch.convert(nn.Hardsigmoid(), (X.half(),), verify=False)
    program.save_asset(tmp_path / "net.aimodel")
    severities = [f.severity for f in lint(tmp_path / "net.aimodel")]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert coreai_torch.lint(program)


def test_float32_convolution_has_no_findings():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2))
    assert found(converted(model, torch.ones(1, 3, 8, 8))()) == set()


def test_float32_perceptron_has_no_findings():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    assert found(converted(model, X)()) == set()
