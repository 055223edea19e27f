"""docs/models.md is what the kept verdicts say, and they are good."""

from __future__ import annotations

import page
import pytest
import zoo


@pytest.fixture(scope="module")
def kept():
    return page.load()


def test_verdicts_are_of_models_of_the_zoo(kept):
    assert list(kept) == [name for name in zoo.ROWS if name in kept]
    assert set(zoo.FAST) <= set(kept)


def test_every_verdict_holds_or_has_its_reason(kept):
    for name, verdict in kept.items():
        row, failure = zoo.ROWS[name], verdict["failure"]
        assert row.refused in failure if row.refused else not failure, name


def test_errors_are_within_the_tolerance_of_the_row(kept):
    for name, verdict in kept.items():
        row = zoo.ROWS[name]
        assert row.refused or verdict["error"] <= row.tolerance, name


def test_the_page_is_the_generated_one(kept):
    assert page.PAGE.read_text() == "\n".join(page.page(kept)) + "\n"
