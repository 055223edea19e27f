"""Models at their published sizes convert, load and run within limits of time and memory."""

from __future__ import annotations

import published_sizes
import pytest
import zoo


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.PUBLISHED_SIZES)
def test_model_at_its_published_size(name):
    verdict = published_sizes.verdict_on(name)
    assert not verdict.failure, f"{verdict.failure}\n{verdict.trace}"
