"""The score of kinds that were not judged again stays as it was."""

from __future__ import annotations

from . import score


def _score(kind: str, verdict: str) -> dict:
    row = {"kind": kind, "name": "n", "verdicts": {"n": verdict}, "rewrites": {"HAZ11": 2}}
    failures = {"n": "wrong"} if verdict == "failed" else {}
    return score._score([{**row, "failures": failures, "measured": {"commit": kind}}])


def test_other_kinds_keep_their_figures():
    models, dynamic = _score("model", "failed"), _score("dynamic", "passed")
    both = score.merged(models, dynamic)
    assert both["verdicts"] == {"static": {}, "dynamic": {"passed": 1}, "model": {"failed": 1}}
    assert [run["kind"] for run in both["runs"]] == ["model", "dynamic"]
    assert both["failures"] == {"model n": "wrong"}
    again = score.merged(both, _score("model", "passed"))
    assert again["verdicts"]["model"] == {"passed": 1}
    assert not again["failures"]
    assert again["places"]["dynamic"] == {"HAZ11": 2}
