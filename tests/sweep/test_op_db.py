"""Every entry of PyTorch's op database: nothing wrong, nothing dies, nothing newly refused."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sweep import entries
from tests.sweep.known_refusals import KNOWN_REFUSALS
from tests.sweep.out_of_scope import OUT_OF_SCOPE
from tests.sweep.outcome import ATTEMPTED, DEFECTS, Kind
from tests.sweep.pool import Worker
from tests.sweep.tolerances import PRODUCTS, UNDEFINED

pytestmark = pytest.mark.slow


def pytest_generate_tests(metafunc):
    if "entry" in metafunc.fixturenames:
        # The database takes four seconds to load: not worth it where the sweep is not run.
        wanted = "not slow" not in metafunc.config.getoption("markexpr")
        metafunc.parametrize("entry", list(entries.entries()) if wanted else [])


@pytest.fixture(scope="module")
def worker():
    started = Worker()
    yield started
    started.close()


def test_entry(entry, worker):
    if entry in OUT_OF_SCOPE:
        pytest.skip(OUT_OF_SCOPE[entry])
    result = worker.judge(entry, entries.dtypes(entry))
    complaints = []
    for dtype in entries.dtypes(entry):
        verdicts = result.of(dtype)
        failing = [v for v in verdicts if v.outcome.kind in DEFECTS]
        refused = [v for v in verdicts if v.outcome.kind is Kind.REFUSED]
        if len(refused) > _refusals_known(entry, dtype):
            failing += refused
        complaints += [
            f"{dtype} #{v.index} {v.outcome.kind}: {v.outcome.detail}\n    {v.sample}"
            for v in failing
        ]
    assert not complaints, "\n".join(complaints)
    kinds = Counter(v.outcome.kind for v in result.verdicts)
    if not any(kinds[kind] for kind in ATTEMPTED):
        pytest.skip(f"no sample can be attempted: {dict(kinds)}")


def _refusals_known(entry, dtype):
    row = KNOWN_REFUSALS.get(entry)
    return row.samples.get(dtype, 0) if row else 0


def test_rows_name_entries_that_exist():
    rows = {*OUT_OF_SCOPE, *KNOWN_REFUSALS, *UNDEFINED, *PRODUCTS}
    assert rows - set(entries.entries()) == set()
