"""The stored figures of calls at real sizes: right, within the limits, and fast or explained."""

from __future__ import annotations

import json

import torch

from benchmarks.ops import child, sweep
from benchmarks.ops.cases import CASES
from benchmarks.ops.real_sizes import EXPLAINED, PARTS


def test_stored_calls_meet_the_limits_or_are_explained():
    rows = json.loads(sweep.STORED.read_text())
    assert len(rows) > 300
    complaints = {row["name"]: sweep.complaint(row["figures"]) for row in rows}
    unexplained = {name: text for name, text in complaints.items() if text}
    assert set(unexplained) <= set(EXPLAINED), unexplained


def test_every_call_is_defined_once():
    assert len(sweep.ALL) == len(CASES) + sum(map(len, PARTS))


def test_stored_calls_are_in_the_list():
    assert {row["name"] for row in json.loads(sweep.STORED.read_text())} <= set(sweep.ALL)


def test_unstable_sort_may_have_any_order_of_equal_numbers():
    x = torch.tensor([2.0, 1.0, 2.0, float("nan")])
    wanted = list(x.sort(stable=True))
    other_order = torch.tensor([1, 2, 0, 3])
    assert child.sort_error([wanted[0], wanted[1]], wanted, x) == 0
    assert child.sort_error([wanted[0], other_order], wanted, x) == 0
    assert child.error([wanted[0], other_order], wanted) > 0


def test_unstable_sort_must_return_a_permutation_that_sorts():
    x = torch.tensor([2.0, 1.0, 2.0])
    wanted = list(x.sort(stable=True))
    for places in ([1, 0, 0], [0, 1, 2], [1, 0, 3], [1, 0]):
        assert child.sort_error([wanted[0], torch.tensor(places)], wanted, x) == float("inf")
    places = torch.tensor([0, 1, 2])
    assert child.sort_error([x, places], wanted, x) > sweep.WRONG
