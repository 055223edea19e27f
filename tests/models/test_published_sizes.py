"""Models at their published sizes convert, load and run within limits of time and memory."""

from __future__ import annotations

import published_sizes
import pytest
import zoo

# With an earlier version, `optimize` did not return, or loading took more than 16 GB.
REPORTED = ("mpnet 512 tokens", "timm_volo_d1_224 224x224")


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.PUBLISHED_SIZES)
def test_model_at_its_published_size(name):
    verdict = published_sizes.verdict_on(name)
    assert not verdict.failure, f"{verdict.failure}\n{verdict.trace}"


def test_stored_verdicts_pass():
    stored = published_sizes.load()
    assert {v["commit"] for v in stored["models"].values()} == {r["commit"] for r in stored["runs"]}
    failures = {n: v["failure"] for n, v in stored["models"].items() if v["failure"]}
    assert not failures
    assert set(REPORTED) <= set(stored["models"])
