"""Each rewrite removes its construct, keeps the numbers, and can be switched off."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import runtime
import torch
from torch import nn

import coreai_torch
from coreai_torch import errors, get_decomp_table
from coreai_torch.asset.reading import read
from coreai_torch.targets.lint import RULES, lint_program
from coreai_torch.targets.placing import RULES as PLACEMENT_RULES
from coreai_torch.targets.placing import placement_of
from coreai_torch.targets.rewrites import REWRITES, chosen

from .cases import CASES, Call, converter

ON_REQUEST = [rewrite.code for rewrite in REWRITES if rewrite.on_request]
ALL = coreai_torch.Target("any", extra_rewrites=ON_REQUEST)
ROWS = [pytest.param(*case, id=f"{case[0]}-{i}") for i, case in enumerate(CASES)]
TOLERANCE = {torch.float16: (2e-3, 1e-3), torch.float32: (1e-5, 1e-6)}


def exported(model, inputs):
    model = model if isinstance(model, nn.Module) else Call(model)
    return torch.export.export(model.eval(), inputs).run_decompositions(get_decomp_table())


def converted(code, program, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.NarrowingWarning)
        return converter(code, **options).add_exported_program(program).to_coreai()


def found(program) -> set[str]:
    source = read(program)
    ops = [op for unit in ("neural_engine", "gpu") for op in placement_of(source, unit).ops]
    placed = {rule.code for op in ops for rule in (*op.rules, *op.notes)}
    return placed | {finding.code for finding in lint_program(source)}


@pytest.mark.parametrize(("code", "model", "inputs"), ROWS)
def test_rewrite_removes_the_hazard_and_keeps_the_numbers(code, model, inputs):
    program = exported(model, inputs)
    assert code in found(converted(code, program))
    rewritten = converted(code, program, target=ALL)
    assert code in [one.code for one in rewritten.rewrites]
    assert code not in found(rewritten)
    rewritten.optimize()
    assert code not in found(rewritten)
    names = [spec.arg.name for spec in program.graph_signature.input_specs][-len(inputs) :]
    actual = runtime.run(rewritten, dict(zip(names, inputs, strict=True)))
    expected = program.module()(*inputs)
    expected = expected if isinstance(expected, tuple | list) else [expected]
    for got, want in zip(actual.values(), expected, strict=True):
        relative, absolute = TOLERANCE.get(want.dtype, (0, 0))
        torch.testing.assert_close(
            got.to(want.dtype), want, rtol=relative, atol=absolute, equal_nan=True
        )


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.code)
def test_rewrite_can_be_skipped(rewrite):
    code, model, inputs = next(case for case in CASES if case[0] == rewrite.code)
    program = exported(model, inputs)
    skipped = converted(code, program, target=replace(ALL, skip_rewrites=[code]))
    assert code not in [one.code for one in skipped.rewrites]


def test_every_rewrite_belongs_to_a_rule():
    rules = {rule.code: rule for rule in (*PLACEMENT_RULES, *RULES)}
    for rewrite in REWRITES:
        assert set(rewrite.units) == set(rules[rewrite.code].units)
    for rule in RULES:
        assert rule.rewrite == next((r.summary for r in REWRITES if r.code == rule.code), "")
    assert {case[0] for case in CASES} == {rewrite.code for rewrite in REWRITES}


def test_target_selects_rewrites():
    codes = {target: {r.code for r in chosen(target)} for target in ("gpu", "cpu", "any")}
    assert "HAZ11" in codes["gpu"] - codes["cpu"]
    assert codes["gpu"] | codes["cpu"] < codes["any"]
    assert chosen(None) == chosen("any", safe=False) == ()


def test_default_is_unchanged():
    program = coreai_torch.convert(nn.Hardswish(), (torch.ones(2, 3),), verify=False)
    assert program.rewrites == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"target": "npu"}, "target is 'npu'"), ({"skip_rewrites": ["HAZ99"]}, "no rewrite has")],
)
def test_wrong_options_are_rejected(options, message):
    with pytest.raises(errors.ConversionError, match=message):
        coreai_torch.TorchConverter(**options)


def _selected(x):
    """Return the rows with a positive first element; there may be none."""
    return x[(x[:, 0] > 0).nonzero()[:, 0]]


def _from_selected(x):
    rows = _selected(x)
    return rows.floor(), rows.round(), rows.argmax(1), ((rows > 0) & (rows < 1)).float()


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_rewritten_ops_accept_empty_tensors(factor):
    x = factor * torch.rand(4, 3) * 3
    program = exported(Call(_from_selected), (torch.rand(4, 3),))
    rewritten = converted("", program, target="any")
    assert {"HAZ11", "HAZ13", "HAZ15"} <= {one.code for one in rewritten.rewrites}
    rewritten.optimize()
    (name,) = program.graph_signature.user_inputs
    for got, want in zip(
        runtime.run(rewritten, {name: x}).values(), _from_selected(x), strict=True
    ):
        torch.testing.assert_close(got.to(want.dtype), want)


def test_convert_names_the_place():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = Call(torch.round)

        def forward(self, x):
            return self.head(x)

    x = torch.tensor([0.5, 1.5])
    program = coreai_torch.convert(Net(), (x,), target="gpu")
    (one,) = program.rewrites
    assert (one.code, one.graph, one.op) == ("HAZ11", "main", "round")
    assert "module 'head'" in one.place
    assert "HAZ11 round in 'main'" in str(one)


def test_product_before_hardswish_of_dynamic_size_is_rewritten():
    model = nn.Sequential(nn.Linear(8, 8), nn.Hardswish()).half()
    x = torch.linspace(-2, 2, 32).reshape(4, 8).half()
    rows = torch.export.Dim("rows", min=1, max=16)
    program = coreai_torch.convert(model, (x,), dynamic_shapes=({0: rows},), target="neural_engine")
    assert [one.code for one in program.rewrites] == ["HAZ16"]
    assert program.verdict.ok
