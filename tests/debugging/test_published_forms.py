"""The debugging tools take the call forms of the published converter beside their own."""

import asyncio
import io
import json

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.debugging.benchmarker import benchmark_coreai_program
from coreai_torch.debugging.graph import (
    create_graph_from_coreai_program,
    create_graph_from_exported_program,
)
from coreai_torch.debugging.graph_diff import compute_coreai_program_diff
from coreai_torch.debugging.histogram import operation_histogram
from coreai_torch.debugging.inspector import CachingInspector, TorchFXInspector
from coreai_torch.debugging.torch_utils import load_intermediates, save_intermediates


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        low, high = torch.relu(self.last(torch.tanh(self.first(x)))).sort(-1)[0].split(2, -1)
        return (low + high).bfloat16()


@pytest.fixture(scope="module")
def x():
    return torch.randn(2, 8)


@pytest.fixture(scope="module")
def exported(x):
    torch.manual_seed(0)
    return torch.export.export(Model(), (x,)).run_decompositions(get_decomp_table())


@pytest.fixture(scope="module")
def program(exported):
    return TorchConverter().add_exported_program(exported).to_coreai()


def test_benchmark_takes_positions_and_timings_take_names(program, x):
    result = asyncio.run(benchmark_coreai_program(program, {"x": x}, 2))
    timings = result.get_module_timings()
    assert timings["first"].module == "first"
    assert timings[0].milliseconds == max(t.milliseconds for t in timings.values())
    assert dict(timings.items()).keys() == set(timings.keys())
    assert "first" in timings
    assert timings[0] in timings
    assert timings.get("missing") is None
    with pytest.raises(KeyError):
        timings["missing"]


def test_summary_of_a_difference_has_counts(program):
    diff = compute_coreai_program_diff(program, program)
    assert diff.summary.startswith("isomorphic")
    assert diff.summary.source_node_count == diff.summary.mapped_node_count == len(diff.pairs)
    assert diff.summary.unmapped_source_node_count == len(diff.unmapped_source_nodes) == 0
    assert diff.summary.to_dict()["target_node_count"] == len(diff.target_graph)
    assert diff.source_to_target_mapping == diff.target_to_source_mapping


def test_intermediates_in_groups(exported, x, tmp_path):
    seen = []

    def keep(node, value):
        seen.append((node.name, value))
        return "tanh" in node.name or node.op == "placeholder" or "copy" in node.name

    path = save_intermediates(exported, {"x": x}, tmp_path, node_filter=keep)
    assert path.parent.name == "main.aimodelintermediates"
    assert set(json.loads(path.read_text())) == {"inputs", "outputs", "intermediates"}
    loaded = load_intermediates(path.parent, device="cpu")
    assert list(loaded.inputs) == ["x"]
    assert list(loaded.intermediates) == ["tanh"]
    (last,) = loaded.outputs.values()
    assert last.dtype == torch.bfloat16
    assert torch.equal(last, exported.module()(x))
    assert loaded.keys() == loaded.intermediates.keys() | loaded.outputs.keys()
    assert torch.equal(dict(seen)["x"], x)


def test_intermediates_of_a_node_with_several_results(exported, x, tmp_path):
    save_intermediates(exported, (x,), tmp_path)
    parts = [v for v in load_intermediates(tmp_path).values() if isinstance(v, tuple)]
    assert [len(part) for part in parts] == [2] * len(parts)
    assert parts


def test_graph_of_either_program(exported, program):
    for graph in (
        create_graph_from_exported_program(exported),
        create_graph_from_coreai_program(program, "main"),
        create_graph_from_coreai_program(program.mlir_module, "main"),
    ):
        nodes = graph.get_nodes()
        assert [node.key for node in nodes] == graph.get_op_ids()
        assert graph.get_node_by_id(nodes[0].key) is nodes[0]
        assert graph.get_node_by_id("missing") is None
        by_depth = graph.get_nodes_by_depth()
        assert max(by_depth) == graph.get_max_depth()
        assert by_depth[0] == graph.get_nodes_at_depth(0)
        assert sum(map(len, by_depth.values())) == len(nodes)


def test_caching_inspector_reads_each_value_once(exported, x):
    class Counting(TorchFXInspector):
        asked = 0

        async def get_intermediates_for_ops(self, ids, *, inputs):
            self.asked += len(ids)
            return await super().get_intermediates_for_ops(ids, inputs=inputs)

    inner, inputs = Counting(exported), {"x": x}
    caching = CachingInspector(inner)
    for _ in range(2):
        found = asyncio.run(caching.get_intermediates_for_ops(["tanh"], inputs=inputs))
        assert found["tanh"][0].abs().max() <= 1
    assert inner.asked == 1
    caching.clear_cache()
    asyncio.run(caching.get_intermediates_for_ops(["tanh"], inputs=inputs))
    asyncio.run(caching.get_intermediates_for_ops(["tanh"], inputs={"x": x + 1}))
    assert inner.asked == 3


def test_histogram_counts_operations(program):
    histogram = operation_histogram(program)
    assert histogram.counts["coreai.tanh"] == 1
    assert histogram.size == sum(histogram.counts.values())
    assert histogram.to_dict()["counts"] == histogram.counts
    stream = io.StringIO()
    histogram.write_summary(stream)
    assert "     1  coreai.tanh\n" in stream.getvalue()
