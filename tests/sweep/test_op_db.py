"""Judge a part of PyTorch's op database, and check the stored score of all of it.

The score in docs/ops-score.json was measured by `make sweep` at the commit and with the versions in
`measured`; the tests that read it judge no sample.
"""

from __future__ import annotations

import pytest
import torch

from tests.sweep import entries, page, score
from tests.sweep.known_refusals import KNOWN_REFUSALS
from tests.sweep.out_of_scope import OUT_OF_SCOPE
from tests.sweep.outcome import ATTEMPTED, Kind
from tests.sweep.plan import judged
from tests.sweep.set_aside import NUMBERS, SET_ASIDE, VIEWS
from tests.sweep.tolerances import LOOSENED, PRODUCTS, UNDEFINED

pytestmark = pytest.mark.xdist_group("op_db")  # the database takes four seconds to load

_MEASURED = score.load()["measured"]["torch"]
# Another torch has other entries in its database.
same_torch = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != _MEASURED,
    reason=f"the stored score was measured with torch {_MEASURED}",
)

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


REPLACED = ("combinations", "linspace", "cov")  # functions that `convert` replaces


@pytest.mark.parametrize("entry", [*SLICE, *REPLACED])
def test_entry_passes(entry):
    result = judged(entry, dict.fromkeys(entries.dtypes(entry), SAMPLES))
    failing = [
        f"{v.dtype} #{v.index} {v.outcome.kind}: {v.outcome.detail}\n    {v.sample}"
        for v in result.verdicts
        if v.outcome.kind in ATTEMPTED and v.outcome.kind is not Kind.PASS
    ]
    assert failing == []
    assert any(v.outcome.kind is Kind.PASS for v in result.verdicts)


@pytest.mark.stored
def test_stored_score_has_no_defect_and_a_reason_for_every_rejection():
    assert score.complaints(score.load()) == []


@pytest.mark.stored
def test_known_rejections_are_in_the_stored_score():
    kept = score.load()["entries"]
    refused = {
        entry: {d for d, counts in row["samples"].items() if counts.get(Kind.REFUSED)}
        for entry, row in kept.items()
    }
    assert {e: set(r.dtypes) for e, r in KNOWN_REFUSALS.items()} == {
        entry: dtypes for entry, dtypes in refused.items() if dtypes
    }


def test_samples_that_torch_fails_at_are_listed():
    kept = score.load()["entries"]
    failed = {
        (entry, dtype): counts[Kind.EXPORT_FAILED]
        for entry, row in kept.items()
        for dtype, counts in row["samples"].items()
        if Kind.EXPORT_FAILED in counts
    }
    assert failed == {(e, d): row.samples for e, row in SET_ASIDE.items() for d in row.dtypes}


@pytest.mark.stored
@same_torch
def test_stored_score_covers_every_entry():
    kept = score.load()
    named = {*kept["out of scope"], *kept["not judged in this run"]}
    assert set(kept["entries"]) | named == set(entries.entries())
    assert kept["out of scope"] == OUT_OF_SCOPE


@pytest.mark.stored
def test_95_percent_of_the_entries_pass_in_the_stored_score():
    total = score.load()["total"]
    assert total["entries that pass on all samples"] >= 0.95 * total["entries attempted"]


@pytest.mark.stored
@same_torch
def test_page_is_up_to_date():
    assert score.PAGE.read_text() == page.text(), "run python -m tests.sweep.page"


def test_listed_entries_exist():
    aside = {*OUT_OF_SCOPE, *KNOWN_REFUSALS, *SET_ASIDE, *NUMBERS, *VIEWS}
    rows = {*aside, *UNDEFINED, *PRODUCTS, *(e for e, _ in LOOSENED)}
    assert rows - set(entries.entries()) == set()
