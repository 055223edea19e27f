"""The comparator finds the first operations that differ between two programs."""

from __future__ import annotations

import asyncio

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.debugging.comparator import create_comparator_for_programs
from coreai_torch.debugging.search_strategy import LevelOrderStrategy
from coreai_torch.ir import dialect as cai

DEBUG, RELEASE = TorchConverter.Mode.DEBUG, TorchConverter.Mode.RELEASE


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.last = nn.LayerNorm(8)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        for layer in self.layers:
            y = torch.tanh(layer(y)) + y
        return self.last(y).softmax(-1), (y > 0).sum(-1)


X = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def tower():
    torch.manual_seed(0)
    return Tower().eval()


def exported(model):
    return torch.export.export(model, (X,)).run_decompositions(get_decomp_table())


def converted(program, mode=DEBUG, *, optimize=False):
    made = TorchConverter(mode=mode).add_exported_program(program).to_coreai()
    if optimize:
        made.optimize()
    return made


@pytest.fixture(scope="module")
def source():
    return exported(tower())


@pytest.fixture(scope="module")
def changed():
    model = tower()
    with torch.no_grad():
        model.layers[1].weight[0, 0] += 1
    return exported(model)


def compared(source, target, **options):
    async def compare():
        comparator = await create_comparator_for_programs(
            source_program=source, target_program=target, target_entry_point="main"
        )
        return await comparator.compare_with_tolerance(inputs={"x": X}, **options)

    return asyncio.run(compare())


@pytest.mark.parametrize("optimize", [False, True], ids=["as-converted", "optimized"])
def test_a_converted_program_agrees_at_every_node(source, optimize):
    everything = LevelOrderStrategy.top_down
    result = compared(source, converted(source, optimize=optimize), strategy=everything)
    assert result.ok, str(result)
    absent = {n.name for n in source.graph.nodes if n.op == "call_function"} - set(result.errors)
    # The batch norm is fused into the convolution; only one of a norm's results is used.
    assert absent == {
        "convolution",
        "_native_batch_norm_legit_no_training",
        "native_layer_norm",
    }
    assert max(result.errors.values()) < 1e-5


@pytest.mark.parametrize("strategy", ["bisection", "top_down"])
def test_the_changed_layer_is_the_first_to_differ(source, changed, strategy):
    find = getattr(LevelOrderStrategy, strategy)
    result = compared(source, converted(changed), rtol=1e-4, atol=1e-4, strategy=find)
    ((first, second),) = result.failed_nodes
    assert first.module == second.module == "layers.1"
    assert first.op == "aten.linear.default"
    assert second.fx_node == first.key
    assert "layers.1" in str(result)


def test_two_core_ai_programs_are_compared(source, changed):
    first, second = converted(source), converted(changed)
    (pair,) = compared(first, second).failed_nodes
    assert pair.source.module == pair.target.module == "layers.1"


def test_programs_without_fx_nodes_are_paired_by_what_they_compute(source, changed):
    result = compared(converted(source, RELEASE), converted(changed, RELEASE))
    assert result.compared >= 10
    assert {pair.source.module for pair in result.failed_nodes} == {"layers.1"}


@pytest.mark.parametrize("optimize", [False, True], ids=["as-converted", "optimized"])
def test_a_program_without_fx_nodes_is_compared_with_its_export(source, changed, optimize):
    find = LevelOrderStrategy.top_down
    result = compared(source, converted(source, RELEASE, optimize=optimize), strategy=find)
    assert result.ok, str(result)
    assert result.compared >= 10
    target = converted(changed, RELEASE, optimize=optimize)
    ((first, second),) = compared(source, target, rtol=1e-4, atol=1e-4).failed_nodes
    assert first.module == second.module == "layers.1"
    assert first.op == "aten.linear.default"
    ((second, first),) = compared(target, source, rtol=1e-4, atol=1e-4).failed_nodes
    assert first.module == second.module == "layers.1"


@torch.library.custom_op("comparator_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Twice(nn.Module):
    def forward(self, x):
        return twice(x)


def test_a_program_with_a_custom_lowering_needs_debug_mode():
    converter, program = TorchConverter(), exported(Twice())

    @converter.register_torch_lowering("comparator_tests::twice")
    def lower(values_map, node, loc):
        x = values_map[node.args[0].name]
        return cai.add(x, x)

    made = converter.add_exported_program(program).to_coreai()
    with pytest.raises(ValueError, match=r"Mode\.DEBUG"):
        compared(program, made)


class Stateful(nn.Module):
    """A model with a nonzero buffer, and an argument that it writes to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.full((1, 4), 2.0))
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y):
        self.sum.add_(x)
        y.mul_(2)
        return self.linear(self.sum) + y


@pytest.mark.parametrize("by_name", [True, False], ids=["by-name", "in-order"])
def test_states_start_with_the_buffers_of_the_exported_program(by_name):
    torch.manual_seed(0)
    x, y = torch.rand(1, 4), torch.rand(1, 4)
    program = torch.export.export(Stateful().eval(), (x, y))
    program = program.run_decompositions(get_decomp_table())
    names = {"input_names": ["query"], "state_names": ["total", "other"]}
    made = TorchConverter(DEBUG).add_exported_program(program, **names).to_coreai()

    async def compare(**options):
        comparator = await create_comparator_for_programs(
            source_program=program, target_program=made, **options
        )
        inputs = {"y": y, "x": x} if by_name else [x, y]
        return await comparator.compare_with_tolerance(inputs=inputs)

    assert asyncio.run(compare()).ok
    changed = asyncio.run(compare(states={"total": torch.zeros(1, 4)}))
    assert [pair.source.key for pair in changed.failed_nodes] == ["add"]
