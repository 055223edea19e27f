"""The validator finds the first fault in torch and on the runtime with every strategy."""

from __future__ import annotations

import asyncio

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.debugging.graph import Graph, Operation
from coreai_torch.debugging.search import run_search
from coreai_torch.debugging.search_strategy import LevelOrderStrategy
from coreai_torch.debugging.validator import (
    create_validator_for_coreai_program,
    create_validator_for_exported_program,
)

STRATEGIES = {
    "bisection": LevelOrderStrategy.bisection,
    "top-down": LevelOrderStrategy.top_down,
    "auto": LevelOrderStrategy.auto,
}


class Inner(nn.Module):
    def forward(self, x):
        return torch.log(x - 1)


class Faulty(nn.Module):
    """A model whose `log` gives NaN for inputs below 0.5, and an infinity for 0.5."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return torch.tanh(self.inner(torch.relu(x) * 2)) + x


@pytest.fixture(scope="module")
def exported():
    program = torch.export.export(Faulty(), (torch.ones(2, 3),))
    return program.run_decompositions(get_decomp_table())


@pytest.fixture(scope="module")
def program(exported):
    converter = TorchConverter(mode=TorchConverter.Mode.DEBUG)
    return converter.add_exported_program(exported).to_coreai()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_first_nan_of_an_exported_program_is_found(exported, strategy):
    validator = create_validator_for_exported_program(exported)
    check = validator.check_for_nans(inputs={"x": torch.zeros(2, 3)}, strategy=STRATEGIES[strategy])
    (node,) = asyncio.run(check).failed_nodes
    assert (node.op, node.module) == ("aten.log.default", "inner")


@pytest.mark.parametrize("engine", ["runtime", "torch"])
@pytest.mark.parametrize("strategy", ["bisection", "top-down"])
def test_first_nan_of_a_core_ai_program_is_found(program, strategy, engine):
    async def check():
        validator = await create_validator_for_coreai_program(program, "main", engine=engine)
        inputs = {"x": torch.zeros(2, 3)}
        return await validator.check_for_nans(inputs=inputs, strategy=STRATEGIES[strategy])

    result = asyncio.run(check())
    (node,) = result.failed_nodes
    assert (node.op, node.module, node.fx_node) == ("coreai.log", "inner", "log")
    assert "test_validator.py" in node.source
    assert "coreai.log" in str(result)
    assert not result.ok


def test_first_infinity_and_first_failed_predicate_are_found(program):
    async def checks():
        validator = await create_validator_for_coreai_program(program, "main")
        halves = {"x": torch.full((2, 3), 0.5)}
        return [
            await validator.check_for_infs(inputs=halves),
            await validator.check_for_nans(inputs=halves),
            await validator.check(lambda value: bool((value < 1).all()), inputs=halves),
        ]

    infinite, unknown, large = asyncio.run(checks())
    assert [node.op for node in infinite.failed_nodes] == ["coreai.log"]
    assert unknown.ok
    assert unknown.looked_at >= 6
    assert {node.op for node in large.failed_nodes} == {"coreai.constant"}


def test_an_input_can_be_the_first_fault(exported):
    validator = create_validator_for_exported_program(exported)
    result = asyncio.run(validator.check_for_nans(inputs=(torch.full((2, 3), torch.nan),)))
    assert [node.key for node in result.failed_nodes] == ["x"]


def chain(length):
    keys = range(length)
    return Graph(tuple(Operation(k, "op", (k - 1,) if k else ()) for k in keys), (length - 1,))


@pytest.mark.parametrize("first", [0, 1, 137, 998, 999])
def test_bisection_of_a_thousand_operations_needs_at_most_four_runs(first):
    async def look(batch):
        return {operation.key: operation.key < first for operation in batch}

    found = asyncio.run(run_search(chain(1000), LevelOrderStrategy.bisection, look))
    assert [operation.key for operation in found.failed] == [first]
    assert found.runs <= 4


def test_operations_without_a_value_are_skipped():
    async def look(batch):
        return {o.key: o.key < 500 for o in batch if o.key % 3 == 0}

    for strategy in STRATEGIES.values():
        found = asyncio.run(run_search(chain(1000), strategy, look))
        assert [operation.key for operation in found.failed] == [501]


def test_a_restricted_graph_keeps_dependencies():
    graph = chain(10).restricted({2, 5, 9})
    assert [(o.key, o.inputs) for o in graph] == [(2, ()), (5, (2,)), (9, (5,))]
    assert graph.outputs == (9,)


def test_a_batch_size_of_zero_is_rejected():
    with pytest.raises(ValueError, match="batch_size is 0"):
        LevelOrderStrategy.bisection(chain(3), batch_size=0)
