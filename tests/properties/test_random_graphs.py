"""Random graphs of lowered ops agree with eager, before and after `optimize`."""

from __future__ import annotations

import random

import pytest
from graphs import differences, drawn
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

pytestmark = [
    # The graphs keep to 32 bits; the warning has tests of its own.
    pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning"),
    # Variances of one element and the like are as good as any other value.
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]
TOGETHER = 8  # graphs in one program
SEEDED = 5  # programs
PARTS, SOUGHT = 12, 25  # parts, and programs in each


def _check(number, dynamic):
    """Gives the number of graphs that computed anything."""
    pools = [drawn(number) for _ in range(TOGETHER)]
    found = differences(pools, dynamic)
    assert not found, "\n\n".join(found)
    return sum(bool(pool.ends()) for pool in pools)


@pytest.mark.parametrize("start", range(SEEDED))
def test_seeded_graphs(start):
    _check(random.Random(start).randint, dynamic=bool(start % 2))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_sought_graphs(part):
    graphs = 0

    @seed(part)
    @settings(
        max_examples=SOUGHT,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data(), dynamic=st.booleans())
    def search(data, dynamic):
        nonlocal graphs
        graphs += _check(lambda low, high: data.draw(st.integers(low, high)), dynamic)

    search()
    assert graphs >= 2000 / PARTS
