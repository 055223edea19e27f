"""The comparison with the published converter's programs."""

from __future__ import annotations

import pytest
import torch

from benchmarks.forms.judge import Row, is_foreign, total, worst
from benchmarks.forms.peer import key
from benchmarks.forms.program import Call
from benchmarks.forms.programs import PROGRAMS
from benchmarks.forms.reasons import REASONS


def side(**ops):
    return {"ops": ops, "inner": {}, "float32": 2, "findings": {"gpu": {"HAZ05": 3, "HAZ52": 1}}}


def row(ours, published, **more):
    return Row("pad", "pad", "f16", ours, published, **more)


@pytest.mark.parametrize(
    ("kind", "foreign"),
    [("while", True), ("gather_nd", True), ("scatter_nd", True), ("where", True), ("if", True)]
    + [("slice", False), ("reverse", False), ("[gather_mm]", False), ("scan", False)],
)
def test_gathers_writes_and_control_flow_are_foreign(kind, foreign):
    assert is_foreign(kind) == foreign


def test_an_op_of_a_kind_that_the_other_program_has_is_not_foreign():
    assert row(side(gather_nd=2, where=1), side(gather_nd=3)).foreign == {"where": 1}
    assert row(side(gather_along_axis=1), side(gather_nd=1)).foreign == {}


@pytest.mark.parametrize(
    ("ours", "published", "plain"),
    [
        ({"pad": 1}, {"pad": 1}, True),
        ({"pad": 2}, {"pad": 1}, False),
        ({"gather_nd": 1}, {"pad": 5}, False),
        ({"broadcast_in_dims": 2, "reshape": 3}, {"interpolate": 1}, True),
        ({"broadcast_in_dims": 2, "reshape": 3}, {"pad": 1}, False),
        ({"broadcast_in_dims": 3, "reshape": 3}, {"interpolate": 1}, False),
    ],
)
def test_a_plain_program_has_at_most_as_many_ops_but_resizes(ours, published, plain):
    assert row(side(**ours), side(**published)).is_plain == plain


def test_totals_leave_out_programs_that_one_converter_rejects():
    rows = [
        row(side(cast=2), side(cast=1)),
        row(side(pad=1), side(pad=1)),
        row(side(pad=1), {"problem": "unsupported"}),
    ]
    found = total(rows)
    assert (found.compared, found.plain, found.explained) == (2, 1, 0)
    assert (found.casts, found.float32) == ((2, 1), (4, 4))
    assert worst(rows) == {"pad": rows[:1]}
    assert rows[2].problem == "published: unsupported"


def test_a_reason_belongs_to_a_program_and_counts_if_it_is_not_plain():
    assert set(REASONS) <= set(PROGRAMS)
    longer = Row("select: argmax", "select", "f32", side(argmax=1, where=1), side(argmax=1))
    plain = Row("select: argmax", "select", "f32", side(argmax=1), side(argmax=1))
    assert longer.reason == REASONS["select: argmax"]
    assert not plain.reason
    assert total([longer, plain]).explained == 1


def test_findings_leave_out_paths_of_source_files():
    assert row(side(pad=1), side(pad=1)).findings("gpu") == (1, 1)


def test_the_key_of_the_cache_depends_on_the_function_and_its_inputs():
    def called(number):
        return Call(lambda x: x + number)

    x = torch.ones(2)
    keys = [
        key("add", called(1), (x,)),
        key("add", called(2), (x,)),
        key("add", called(1), (x.half(),)),
        key("add", Call(lambda x: x * 1), (x,)),
    ]
    assert len(set(keys)) == 4
    assert key("add", called(1), (x,)) == keys[0]


def test_calls_and_models_have_both_precisions():
    families = {program.family for program in PROGRAMS.values()}
    assert {"pad", "resize", "index", "attention", "vision", "text"} <= families
    assert sum(program.half for program in PROGRAMS.values()) > 94
