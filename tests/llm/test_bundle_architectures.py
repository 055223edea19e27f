"""The verdicts on the bundles of many architectures."""

from __future__ import annotations

import architectures
import bundle_verdicts
import pytest

VERDICTS = bundle_verdicts.load()


def test_at_least_forty_architectures_conform():
    assert sum(row["verdict"] == "conforms" for row in VERDICTS.values()) >= 40
    assert set(VERDICTS) <= set(architectures.names())


def test_architectures_conform_or_are_rejected():
    assert {row["verdict"] for row in VERDICTS.values()} == {"conforms", "rejected"}


def test_rejected_architectures_have_a_cause():
    causes = ("but the engine needs", "but the engine runs long prompts in chunks")
    for row in VERDICTS.values():
        assert (row["verdict"] == "rejected") == any(c in row["reason"] for c in causes)


@pytest.mark.stored
def test_page_shows_the_verdicts():
    page = bundle_verdicts.PAGE.read_text()
    assert page == bundle_verdicts.page_with_table(page, VERDICTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERDICTS)
def test_architecture_has_the_stored_verdict(name):
    got = bundle_verdicts.judge(name)
    assert (got["verdict"], got["reason"]) == (VERDICTS[name]["verdict"], VERDICTS[name]["reason"])
