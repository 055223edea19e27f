"""`make op OP=...` finds the cases and database entries of an op, and suggests names."""

from __future__ import annotations

import one_op
import pytest

pytestmark = pytest.mark.xdist_group("op_db")  # the database takes four seconds to load


@pytest.mark.parametrize(
    "name",
    ["hypot", "aten::hypot", "aten.hypot.default", "hypot_"],
    ids=["name", "qualified", "overload", "in place"],  # not selected by `pytest -k hypot`
)
def test_finds_cases_and_entry(name):
    rows = one_op.cases_of(name)
    assert {row.values[2] for row in rows} == {"static", "dynamic"}
    assert {row.values[0].target.name() for row in rows} == {"aten::hypot"}
    assert one_op.entries_of(name) == ["hypot"]


def test_finds_private_op_and_variants():
    targets = {row.values[0].target.name() for row in one_op.cases_of("softmax")}
    assert "aten::_softmax" in targets
    assert one_op.entries_of("softmax") == ["softmax", "softmax.with_dtype"]


def test_unknown_op_suggests_names(capsys):
    assert one_op.main(["hypott"]) == 2
    assert capsys.readouterr().out == (
        "No lowering and no entry of the op database is called 'hypott'.\n  try   hypot\n"
    )


def test_case_that_fails_is_reported(monkeypatch):
    monkeypatch.setattr(one_op, "check", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in one_op.run_case(one_op.cases_of("hypot")[0])
