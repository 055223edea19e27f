"""The stored verdicts are good, and docs/models.md shows them.

The verdicts were measured by `python tests/models/page.py` at the commits and with the versions in
`runs` of verdicts.json; these tests read them and judge no model.
"""

from __future__ import annotations

import page
import pytest
import zoo


@pytest.fixture(scope="module")
def kept():
    return page.load()


@pytest.mark.stored
def test_every_verdict_names_a_recorded_run(kept):
    commits = [run["commit"] for run in page.runs()]
    assert len(set(commits)) == len(commits)
    assert {verdict["commit"] for verdict in kept.values()} == set(commits)


def test_every_verdict_has_a_model_in_the_zoo(kept):
    assert list(kept) == [name for name in zoo.ROWS if name in kept]
    assert set(zoo.FAST) <= set(kept)


def test_every_verdict_passes_or_has_a_reason(kept):
    for name, verdict in kept.items():
        row, failure = zoo.ROWS[name], verdict["failure"]
        assert row.refused in failure if row.refused else not failure, name


def test_errors_are_within_tolerance(kept):
    for name, verdict in kept.items():
        row = zoo.ROWS[name]
        assert row.refused or verdict["error"] <= row.tolerance, name


@pytest.mark.stored
def test_page_is_up_to_date(kept):
    assert page.PAGE.read_text() == "\n".join(page.page(kept, page.runs())) + "\n"
