"""The stored figures of calls at real sizes: right, within the limits, and fast or explained."""

from __future__ import annotations

import json

from benchmarks.ops import sweep
from benchmarks.ops.real_sizes import EXPLAINED


def test_stored_calls_meet_the_limits_or_are_explained():
    rows = json.loads(sweep.STORED.read_text())
    assert len(rows) > 300
    complaints = {row["name"]: sweep.complaint(row["figures"]) for row in rows}
    unexplained = {name: text for name, text in complaints.items() if text}
    assert set(unexplained) <= set(EXPLAINED), unexplained


def test_stored_calls_are_in_the_list():
    assert {row["name"] for row in json.loads(sweep.STORED.read_text())} <= set(sweep.ALL)
