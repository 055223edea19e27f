"""Random graphs of lowered ops agree with eager, before and after `optimize`."""

from __future__ import annotations

import random

import pytest
from graphs import differences, drawn

pytestmark = [
    # The values of the graphs fit 32 bits; other tests check the warning.
    pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning"),
    # A variance of one element (NaN) is a valid value.
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]
GRAPHS = 8  # graphs in one program
SEEDS = 5  # programs
PARTS, EXAMPLES = 12, 25  # parts, and programs in each


def _check(number, dynamic):
    """Return the number of graphs with at least one step."""
    pools = [drawn(number) for _ in range(GRAPHS)]
    found = differences(pools, dynamic)
    assert not found, "\n\n".join(found)
    return sum(bool(pool.ends()) for pool in pools)


@pytest.mark.parametrize("start", range(SEEDS))
def test_seeded_graphs(start):
    _check(random.Random(start).randint, dynamic=bool(start % 2))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_generated_graphs(part):
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    graphs = 0

    @seed(part)
    @settings(
        max_examples=EXAMPLES,
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
