"""Whole models in half precision stay within the limit, with few multiply-adds in float32."""

from __future__ import annotations

import half_models
import pytest

STORED = half_models.load()["rows"]


def check(row):
    """Check one row: the error with islands, and their cost on ordinary weights."""
    assert "failure" not in row
    errors = row["error_after"], row["error_converted"]
    assert all(isinstance(error, float) and error <= row["limit"] for error in errors)
    if row["scaled"] and row["dtype"] == "float16":
        assert row["error_before"] == "inf"
        assert row["islands"] > 0
    elif row["error_before"] <= row["limit"]:
        assert row["islands"] == 0
    if not row["scaled"]:
        assert (row["float32_share"] or 0) <= half_models.MOST_IN_FLOAT32


@pytest.mark.stored
@pytest.mark.parametrize(
    "row", STORED, ids=[f"{r['model']}-{r['dtype']}-{r['scaled']}" for r in STORED]
)
def test_stored_row_is_within_the_limits(row):
    check(row)


@pytest.mark.stored
def test_page_has_the_stored_rows():
    assert half_models.table() in half_models.PAGE.read_text()


@pytest.fixture(scope="module")
def detector():
    return half_models.Measured("detector")


@pytest.mark.parametrize("scaled", [False, True])
def test_detector_is_within_the_limits(detector, scaled):
    check(detector.measure("float16", scaled=scaled))


@pytest.mark.slow
@pytest.mark.parametrize("name", half_models.MODELS)
def test_model_is_within_the_limits(name):
    measured = half_models.Measured(name)
    for scaled in (False, True):
        for dtype in half_models.DTYPES:
            check(measured.measure(dtype, scaled=scaled))
