"""Stored scores have a commit and versions, and the pages that show them print both.

The scores are measured by `make sweep`, `python tests/models/page.py --all` and `make bench`, at
the commit that they name, and not by this test.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import provenance
import pytest

ROOT = Path(__file__).parents[2]
OPS, MODELS = ROOT / "docs" / "ops-score.json", ROOT / "tests" / "models" / "verdicts.json"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
SENTENCE = re.compile(r"Measured at commit `([0-9a-f]+(?:-dirty)?)` with (.+?)\.\n")


def measured():
    """Return what each score was measured with, by a name of the score."""
    (ops,) = [json.loads(OPS.read_text())["measured"]]
    runs = json.loads(MODELS.read_text())["runs"]
    found = {"ops": ops, **{f"models {run['commit']}": run for run in runs}}
    for commit, _ in SENTENCE.findall(BENCHMARKS.read_text()):
        found[f"benchmarks {commit}"] = {"commit": commit}
    return found


@pytest.mark.stored
@pytest.mark.parametrize("name", measured())
@pytest.mark.filterwarnings("always::provenance.StaleScoreWarning")
def test_warn_if_a_score_is_old(name):
    commit = measured()[name]["commit"]
    commits = provenance.age(commit)
    if commits is None:
        pytest.skip(reason=f"the git history is absent or does not contain commit {commit}")
    assert commits >= 0
    if commits > provenance.OLD:
        warnings.warn(
            f"the score of {name} is {commits} commits old: measure it again",
            provenance.StaleScoreWarning,
            stacklevel=1,
        )


@pytest.mark.stored
def test_every_score_has_a_commit_and_versions():
    for name, found in measured().items():
        assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", found["commit"]), name
        if not name.startswith("benchmarks"):
            assert {"python", "torch", "coreai-core"} <= set(found), name


@pytest.mark.stored
@pytest.mark.parametrize("page", ["ops.md", "models.md", "benchmarks.md"])
def test_page_prints_commit_and_versions(page):
    text = (ROOT / "docs" / page).read_text()
    found = SENTENCE.findall(text)
    assert found, "the page has no line 'Measured at commit ... with ...'"
    assert all("torch " in versions for _, versions in found)


@pytest.mark.stored
def test_readme_names_the_commits_of_its_scores():
    text = (ROOT / "README.md").read_text()
    for name, found in measured().items():
        assert f"`{found['commit']}`" in text, f"the README does not name the commit of {name}"


def test_current_has_commit_and_versions():
    found = provenance.current("pytest")
    assert list(found) == ["commit", "python", "torch", "coreai-core", "pytest"]
    assert all(found.values())


def test_age_of_an_unknown_commit_is_none():
    assert provenance.age("0123456789abcdef") is None


def test_age_counts_commits():
    if provenance.age("HEAD") is None:
        pytest.skip(reason="the git history is absent")
    assert provenance.age("HEAD") == 0
