"""The stored figures of calls at real sizes: right, within the limits, and fast or explained."""

from __future__ import annotations

import json
import math

import pytest
import torch

from benchmarks.ops import child, sweep
from benchmarks.ops.cases import CASES
from benchmarks.ops.real_sizes import EXPLAINED, PARTS


@pytest.mark.stored
def test_stored_calls_meet_the_limits_or_are_explained():
    rows = json.loads(sweep.STORED.read_text())
    assert len(rows) > 300
    complaints = {row["name"]: sweep.complaint(row["figures"]) for row in rows}
    unexplained = {name: text for name, text in complaints.items() if text}
    assert set(unexplained) <= set(EXPLAINED), unexplained


def test_every_call_is_defined_once():
    assert len(sweep.ALL) == len(CASES) + sum(map(len, PARTS))


@pytest.mark.stored
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


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_error_is_infinite_where_only_one_side_is_finite(wrong):
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([1.0, wrong])
    assert child.error([y], [x]) == math.inf
    assert child.error([x], [y]) == math.inf
    assert child.error([y], [y]) == 0


def test_error_of_opposite_infinities_is_infinite():
    x = torch.tensor([1.0, math.inf])
    assert child.error([x], [x * torch.tensor([1.0, -1.0])]) == math.inf


def test_error_of_complex_numbers_is_the_largest_of_both_parts():
    x = torch.tensor([complex(3.0, 4.0), complex(1.0, math.inf)])
    assert child.error([x], [x]) == 0
    assert child.error([x + 1j], [x]) == pytest.approx(0.25)


def test_call_of_a_few_milliseconds_may_be_slow():
    figures = {"error": 0.0, "run": 0.004, "eager": 0.00001}
    assert sweep.complaint(figures) == "400 times eager"
