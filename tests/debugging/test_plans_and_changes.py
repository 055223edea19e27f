"""The published interfaces about plans, changes, modules, intermediates and times."""

from __future__ import annotations

import asyncio
import io
import json

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch.asset.reading import read
from coreai_torch.debugging.benchmarker import BenchmarkResult, OperationTiming
from coreai_torch.debugging.changes import OpDiffType, OpSide, compute_changes
from coreai_torch.debugging.compute_plan import ComputeDevice, ComputePlan, ComputePlanEntry
from coreai_torch.debugging.graph import graph_of_coreai_program, operation_ids
from coreai_torch.debugging.graph_match import OpIdAlignment, WeightPolicy, op_id_alignment
from coreai_torch.debugging.histogram import operation_histogram
from coreai_torch.debugging.intermediates import (
    compare_intermediates,
    compare_program_intermediates,
)
from coreai_torch.debugging.modules import (
    UNATTRIBUTED,
    Attribution,
    attributions_by_op_id,
    build_module_tree,
)
from coreai_torch.debugging.plan_diff import compare_compute_plans, diff_compute_plans
from coreai_torch.debugging.timing_diff import Resize, compare_results
from coreai_torch.debugging.torch_utils import load_intermediates, save_intermediates
from coreai_torch.errors import ConversionError

CPU, GPU, UNIT, UNKNOWN = (
    ComputeDevice.CPU,
    ComputeDevice.GPU,
    ComputeDevice.NEURAL_ENGINE,
    ComputeDevice.UNKNOWN,
)


class Net(nn.Module):
    def __init__(self, activation=torch.tanh):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        self.activation = activation

    def forward(self, x):
        return self.second(self.activation(self.first(x)))


class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.left(x), self.right(x)


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def exported(model):
    program = torch.export.export(model.eval(), (X,))
    return program.run_decompositions(coreai_torch.get_decomp_table())


def converted(model):
    converter = coreai_torch.TorchConverter("debug")
    return converter.add_exported_program(exported(model)).to_coreai()


@pytest.fixture(scope="module")
def before():
    return converted(Net())


@pytest.fixture(scope="module")
def after():
    return converted(Net(torch.sin))


def ids(program, *names):
    return [n for _, op, n in operation_ids(read(program)) if op.name.endswith(names)]


def plan(program, device=UNIT, **messages):
    entries = {n: ComputePlanEntry(n, frozenset({device})) for n in ids(program, "")}
    return ComputePlan(entries)


@pytest.mark.parametrize(
    ("text", "device"),
    [("ane", UNIT), ("Neural Engine", UNIT), ("gpu", GPU), (" CPU ", CPU), ("tpu", UNKNOWN)],
)
def test_devices_are_read_in_any_spelling(text, device):
    assert ComputeDevice.from_string(text) is device


def test_a_plan_of_a_program_needs_a_device(before, after):
    for asked in (ComputePlan.from_program(before), compare_compute_plans(before, after)):
        with pytest.raises(ConversionError, match=r"ComputePlan\.read\(path\)"):
            asyncio.run(asked)


def test_a_plan_is_read_as_it_was_written(before, tmp_path):
    tanh, *_ = ids(before, "tanh")
    entry = ComputePlanEntry(tanh, frozenset({UNIT, CPU}), frozenset({"slow here"}))
    written = ComputePlan({tanh: entry})
    written.write(tmp_path / "plan.json", before)
    found = ComputePlan.read(tmp_path / "plan.json")
    assert found.entries == written.entries
    data = json.loads((tmp_path / "plan.json").read_text())
    assert data["entry_count"] == 1
    assert data["device_histogram"] == {"CPU": 1, "NEURAL_ENGINE": 1}
    assert data["entries"][0]["residency"] == "PLACED"
    assert data["operation_names"][str(tanh)] == "coreai.tanh"
    assert tanh not in data["operations_without_entry"]
    assert len(data["operations_without_entry"]) == len(data["operation_names"]) - 1


def test_only_operations_without_an_entry_are_unknown(before):
    tanh, other = ids(before, "tanh")[0], ids(before, "batch_matmul")[0]
    found = ComputePlan({tanh: ComputePlanEntry(tanh, frozenset({GPU}), frozenset({"why"}))})
    operation = graph_of_coreai_program(before).by_key[tanh]
    assert found.get_devices(operation) == found.devices_for_id(tanh) == {GPU}
    assert found.get_validation_messages(operation) == {"why"}
    assert found.devices_for_id(other) == {UNKNOWN}
    assert found.get_validation_messages(other) == set()


@pytest.mark.parametrize("text", ["[]", "{}", '{"entries": [{}]}', "not JSON"])
def test_other_files_are_not_plans(text, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ConversionError, match="compute plan"):
        ComputePlan.read(tmp_path / "plan.json")


def test_source_lines_are_annotated(before):
    stream = io.StringIO()
    plan(before, GPU).annotate_source(before, stream)
    lines = stream.getvalue().splitlines()
    (line,) = (
        text
        for text in lines
        if text.endswith("    return self.second(self.activation(self.first(x)))")
    )
    assert "GPU |" in line
    assert line.split("|")[0].strip()[0].isdigit()


def test_a_plan_diff_accounts_for_every_pair(before, after):
    alignment = op_id_alignment(before, after)
    moved = ids(before, "batch_matmul")[0]
    old, new = plan(before), plan(after)
    new.entries[alignment.mapping[moved]] = ComputePlanEntry(
        alignment.mapping[moved], frozenset({CPU}), frozenset({"too wide"})
    )
    unknown = ids(before, "batch_matmul")[1]
    del old.entries[unknown]
    diff = diff_compute_plans(old, new, alignment)
    (change,) = diff.changes
    assert (change.operation_id, change.before, change.after) == (moved, {UNIT}, {CPU})
    assert (change.reason, change.module) == ("too wide", "first")
    assert unknown in diff.unresolved
    counted = len(diff.changes) + len(diff.unchanged) + len(diff.unresolved)
    assert counted == len(alignment.mapping)
    assert diff.only_before == tuple(ids(before, "tanh"))
    assert diff.only_after == tuple(ids(after, "sin"))
    assert list(diff.by_module()) == ["first"]
    stream = io.StringIO()
    diff.write_to(stream, width=40)
    assert f"#{moved}  NEURAL_ENGINE -> CPU" in stream.getvalue()
    json.dumps(diff.to_dict())


def test_equal_layers_are_ambiguous_without_their_weights():
    program, other = converted(Twins()), converted(Twins())
    assert op_id_alignment(program, other).ambiguity.count > 0
    exact = op_id_alignment(program, other, WeightPolicy.DIGEST)
    assert exact.ambiguity.count == 0
    assert exact.mapping.keys() == exact.identical


def test_a_swapped_operation_is_removed_and_added(before, after):
    changes = compute_changes(before, after)
    alone = {(c.op_name, c.change, c.side) for c in changes.changes if c.change.value != "modified"}
    assert alone == {
        ("coreai.tanh", OpDiffType.REMOVED, OpSide.SOURCE),
        ("coreai.sin", OpDiffType.ADDED, OpSide.TARGET),
    }
    counts = changes.counts
    assert counts.changed == len(changes.changes) == counts.added + counts.removed + counts.modified
    assert {c.module_label for c in changes.changes_in("second")} <= {"second"}
    stream = io.StringIO()
    changes.write_summary(stream)
    assert stream.getvalue().startswith(f"{counts.changed} changed: 1 added, 1 removed")
    json.dumps(changes.to_dict())


def test_equal_programs_have_no_changes(before):
    assert compute_changes(before, before).changes == ()


def test_attributions_have_modules_and_lines(before):
    found = attributions_by_op_id(before)
    (tanh,) = ids(before, "tanh")
    assert found[tanh].label == UNATTRIBUTED
    assert found[tanh].source.filename == __file__
    assert found[ids(before, "batch_matmul")[0]].label == "first"


def test_the_tree_of_modules_has_the_heaviest_first():
    pairs = [
        (Attribution(("net", "Linear$3")), 1),
        (Attribution(("net", "norm")), 2),
        (Attribution(("net", "norm")), 3),
        (Attribution(), 4),
    ]
    root = build_module_tree(pairs)
    assert [child.name for child in root.children] == ["net", UNATTRIBUTED]
    net = root.find("net")
    assert [child.name for child in net.children] == ["norm", "Linear$3"]
    linear = root.find("net.Linear$3")
    assert (linear.type_name, linear.instance, linear.items) == ("Linear", 3, [1])
    assert root.find("norm").instance is None
    assert root.find("missing") is None
    assert sorted(root.all_items()) == [1, 2, 3, 4]
    assert root.to_dict(str)["children"][0]["children"][0]["items"] == ["2", "3"]


def test_intermediates_of_both_programs_are_compared(before):
    report = asyncio.run(compare_program_intermediates(exported(Net()), before, {"x": X}))
    assert not report.failures
    assert {"first", "second"} <= report.by_module().keys()
    other = asyncio.run(compare_program_intermediates(exported(Net(torch.cos)), before, {"x": X}))
    assert other.failures
    assert all(one.max_diff > 0 for one in other.failures)
    json.dumps(other.to_dict())


def test_differences_that_are_not_finite_have_no_number():
    same, wrong = torch.ones(2), torch.tensor([1.0, float("inf")])
    report = compare_intermediates({"a": same, "b": same}, {"a": same, "b": wrong})
    assert [(one.name, one.max_diff) for one in report.failures] == [("b", None)]


def test_saved_intermediates_map_nodes_to_operations(before, tmp_path):
    save_intermediates(exported(Net()), {"x": X}, tmp_path, coreai_program=before, model_name="net")
    assert (tmp_path / "net.aimodelintermediates" / "metadata.json").exists()
    loaded = load_intermediates(tmp_path)
    assert loaded.mappings["tanh"] == ids(before, "tanh")
    save_intermediates(exported(Net()), {"x": X}, tmp_path, enable_autocast=True)
    with pytest.raises(ConversionError, match="2 folders"):
        load_intermediates(tmp_path)
    assert load_intermediates(tmp_path / "main.aimodelintermediates").mappings is None


def timings(*rows):
    listed = [OperationTiming(i, "coreai.sin", "", ms, 1.0) for i, ms in rows]
    return BenchmarkResult((1.0,), tuple(listed))


class Fused(OperationTiming):
    """A dispatch of several operations, as devices report them."""

    @property
    def op_ids(self):
        return tuple(range(self.operation_id, self.operation_id + 2))


def test_times_of_paired_dispatches_are_subtracted(tmp_path):
    alignment = OpIdAlignment({1: 11, 2: 12, 3: 13}, modified=frozenset({2}))
    diff = compare_results(
        alignment, timings((1, 2.0), (2, 1.0), (3, 1.0)), timings((11, 2.5), (12, 1.0), (19, 4.0))
    )
    assert [(m.median_delta_ms, m.modified) for m in diff.matched] == [(0.5, False), (0.0, True)]
    assert [row.operation_id for row in diff.only_before] == [3]
    assert [row.operation_id for row in diff.only_after] == [19]
    assert (diff.before_dispatches, diff.after_dispatches) == (3, 3)
    stream = io.StringIO()
    diff.write_to(stream)
    assert "+0.500 ms  #1" in stream.getvalue()
    json.dumps(diff.to_dict())


def test_a_dispatch_that_took_over_an_operation_is_resized():
    alignment = OpIdAlignment({1: 11, 2: 12})
    fused = BenchmarkResult((1.0,), (Fused(11, "coreai.sin", "", float("inf"), 1.0),))
    (row,) = compare_results(alignment, timings((1, 2.0)), fused).resized
    assert (row.resize, row.extra_op_ids) == (Resize.GAINED, {2})
    (back,) = compare_results(OpIdAlignment({11: 1, 12: 2}), fused, timings((1, 2.0))).resized
    assert (back.resize, back.extra_op_ids) == (Resize.LOST, {12})
    data = compare_results(alignment, timings((1, 2.0)), fused).to_dict()
    assert data["resized"][0]["after_ms"] is None


def test_ambiguous_dispatches_stay_unpaired():
    program = converted(Twins())
    alignment = op_id_alignment(program, program)
    doubtful = sorted(alignment.ambiguity.ids)
    same = timings(*((number, 1.0) for number in doubtful))
    assert compare_results(alignment, same, same).matched == ()


def test_a_histogram_describes_composites():
    program = coreai_torch.convert(nn.LayerNorm(4), (X,), verify=False)
    found = operation_histogram(program)
    (composite,) = found.composites
    assert (composite.label, composite.invocations) == ("layer_norm", 1)
    assert composite.symbol.startswith("layer_norm")
    assert composite.size == sum(composite.histogram.counts.values()) > 1
    assert found.to_dict()["composites"][0]["label"] == "layer_norm"
