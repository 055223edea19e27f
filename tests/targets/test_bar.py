"""Models of the families that devices run have one region on the neural engine."""

from __future__ import annotations

import json

import pytest

from . import bar


def test_every_stored_model_has_one_region_or_a_reason():
    rows = json.loads(bar.STORED.read_text())
    assert rows.keys() == bar.MODELS.keys()
    for row in rows.values():
        assert row["optimized"] == 1 or row["reasons"]
        assert row["optimized"] <= row["before"]
    assert any(row["optimized"] < row["before"] for row in rows.values())


@pytest.mark.stored
@pytest.mark.parametrize("name", bar.MODELS)
def test_stored_regions_are_those_of_the_converter(name):
    pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    stored = json.loads(bar.STORED.read_text())[name]
    assert bar.measured(name) == stored, "run python -m tests.targets.bar --record"
