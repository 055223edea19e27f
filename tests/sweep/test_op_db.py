"""A slice of PyTorch's op database lives in every run; the whole of it is kept as a score."""

from __future__ import annotations

import pytest

from tests.sweep import entries, page, score
from tests.sweep.known_refusals import KNOWN_REFUSALS
from tests.sweep.out_of_scope import OUT_OF_SCOPE
from tests.sweep.outcome import ATTEMPTED, Kind
from tests.sweep.pool import Worker
from tests.sweep.set_aside import NUMBERS, SET_ASIDE, VIEWS
from tests.sweep.tolerances import LOOSENED, PRODUCTS, UNDEFINED

pytestmark = pytest.mark.xdist_group("op_db")  # the database takes four seconds to load

SLICE = (
    "add",
    "sum",
    "amax",
    "argmax",
    "as_strided",
    "bmm",
    "cat",
    "clamp",
    "cumsum",
    "div.floor_rounding",
    "exp",
    "gather",
    "index_put",
    "masked_fill",
    "nn.functional.avg_pool2d",
    "nn.functional.conv2d",
    "nn.functional.layer_norm",
    "nn.functional.softplus",
    "remainder",
    "reshape",
    "scatter_add",
    "softmax",
    "sort",
    "to",
    "where",
)
SAMPLES = 3  # of each dtype


@pytest.fixture(scope="module")
def worker():
    started = Worker()
    yield started
    started.close()


@pytest.mark.parametrize("entry", SLICE)
def test_entry_passes(entry, worker):
    result = worker.judge(entry, dict.fromkeys(entries.dtypes(entry), SAMPLES))
    failing = [
        f"{v.dtype} #{v.index} {v.outcome.kind}: {v.outcome.detail}\n    {v.sample}"
        for v in result.verdicts
        if v.outcome.kind in ATTEMPTED and v.outcome.kind is not Kind.PASS
    ]
    assert failing == []
    assert any(v.outcome.kind is Kind.PASS for v in result.verdicts)


def test_nothing_is_wrong_or_dies_and_every_refusal_has_its_reason():
    assert score.complaints(score.load()) == []


def test_every_row_of_refusals_tells_of_one():
    kept = score.load()["entries"]
    refused = {
        entry: {d for d, counts in row["samples"].items() if counts.get(Kind.REFUSED)}
        for entry, row in kept.items()
    }
    assert {e: set(r.dtypes) for e, r in KNOWN_REFUSALS.items()} == {
        entry: dtypes for entry, dtypes in refused.items() if dtypes
    }


def test_every_sample_set_aside_has_its_row():
    kept = score.load()["entries"]
    failed = {
        (entry, dtype): counts[Kind.EXPORT_FAILED]
        for entry, row in kept.items()
        for dtype, counts in row["samples"].items()
        if Kind.EXPORT_FAILED in counts
    }
    assert failed == {(e, d): row.samples for e, row in SET_ASIDE.items() for d in row.dtypes}


def test_every_entry_was_judged_or_is_named():
    kept = score.load()
    named = {*kept["out of scope"], *kept["not judged in this run"]}
    assert set(kept["entries"]) | named == set(entries.entries())
    assert kept["out of scope"] == OUT_OF_SCOPE


def test_at_least_95_of_100_entries_pass():
    total = score.load()["total"]
    assert total["entries that pass on all samples"] >= 0.95 * total["entries attempted"]


def test_the_page_is_what_the_registry_and_the_score_say():
    assert score.PAGE.read_text() == page.text(), "run python -m tests.sweep.page"


def test_rows_name_entries_that_exist():
    aside = {*OUT_OF_SCOPE, *KNOWN_REFUSALS, *SET_ASIDE, *NUMBERS, *VIEWS}
    rows = {*aside, *UNDEFINED, *PRODUCTS, *(e for e, _ in LOOSENED)}
    assert rows - set(entries.entries()) == set()
