"""Random graphs of lowered ops agree with eager, before and after `optimize`."""

from __future__ import annotations

import random

import pytest
from graphs import differences, drawn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytestmark = [
    # The graphs keep to 32 bits; the warning has tests of its own.
    pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning"),
    # Variances of one element and the like are as good as any other value.
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]
TOGETHER = 8  # graphs in one program
SEEDED, SOUGHT = 5, 250  # programs


def _check(number, dynamic):
    found = differences([drawn(number) for _ in range(TOGETHER)], dynamic)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("seed", range(SEEDED))
def test_seeded_graphs(seed):
    _check(random.Random(seed).randint, dynamic=bool(seed % 2))


@pytest.mark.slow
@settings(
    max_examples=SOUGHT,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data(), dynamic=st.booleans())
def test_sought_graphs(data, dynamic):
    _check(lambda low, high: data.draw(st.integers(low, high)), dynamic)
