"""The searches for the first faulty node of a graph."""

from __future__ import annotations

import pytest

from coreai_torch.numerics.bisect import Bisection, TopDown, ancestors

CHAIN = {n: [n - 1] if n else [] for n in range(1000)}
# 3 and 4 are independent; 5 takes both.
DIAMOND = {0: [], 1: [0], 2: [0], 3: [1], 4: [2], 5: [3, 4]}


def run(search, bad):
    """Search with all nodes that depend on a node of `bad` failing; count the runs."""
    runs = 0
    while batch := search.next_batch():
        search.report({node: node not in bad for node in batch})
        runs += 1
    return search.failed(), runs


def after(graph, fault):
    return {node for node in graph if fault in ancestors([node], graph.__getitem__)}


@pytest.mark.parametrize("fault", [0, 1, 499, 998, 999])
def test_bisection_finds_the_first_fault_of_a_chain_in_three_runs(fault):
    search = Bisection(list(CHAIN), CHAIN.__getitem__)
    failed, runs = run(search, after(CHAIN, fault))
    assert failed == [fault]
    assert runs <= 3


@pytest.mark.parametrize("fault", DIAMOND)
@pytest.mark.parametrize("kind", [Bisection, TopDown])
@pytest.mark.parametrize("batch_size", [1, 2, 10])
def test_both_searches_find_the_fault_of_a_diamond(kind, fault, batch_size):
    search = kind(list(DIAMOND), DIAMOND.__getitem__, batch_size)
    assert run(search, after(DIAMOND, fault))[0] == [fault]


def test_top_down_returns_all_independent_faults():
    search = TopDown(list(DIAMOND), DIAMOND.__getitem__)
    assert run(search, {3, 4, 5})[0] == [3, 4]


@pytest.mark.parametrize("kind", [Bisection, TopDown])
def test_no_fault_and_no_nodes_give_an_empty_result(kind):
    assert run(kind(list(CHAIN), CHAIN.__getitem__), set())[0] == []
    assert run(kind([], CHAIN.__getitem__), set()) == ([], 0)


def test_a_node_without_a_value_is_skipped():
    search = Bisection([0, 1, 2], {0: [], 1: [0], 2: [1]}.__getitem__, batch_size=1)
    assert search.next_batch() == [2]
    search.report({})
    assert search.next_batch() == [1]
    search.report({1: False})
    assert search.next_batch() == [0]
    search.report({0: True})
    assert search.next_batch() == []
    assert search.failed() == [1]
