"""Traces of calls in the trace event format."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.debugging.trace import trace_coreai_program
from coreai_torch.errors import ConversionError


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(torch.relu(self.dense(x)))


def converted():
    model, x = nn.Sequential(Layer(), Layer()).eval(), torch.randn(2, 8)
    exported = torch.export.export(model, (x,)).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported, input_names=["x"]).to_coreai()
    return program, x


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    program, x = converted()
    path = tmp_path_factory.mktemp("trace") / "deep" / "net.json"
    asyncio.run(trace_coreai_program(program, {"x": x}, num_runs=2)).write(path)
    assert [p.name for p in path.parent.iterdir()] == ["net.json"]
    return json.loads(path.read_text())


def complete(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_events_have_the_keys_of_the_trace_event_format(written):
    assert written["displayTimeUnit"] == "ms"
    for event in written["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} <= event.keys()
        assert isinstance(event["name"], str)
        assert event["ph"] in ("X", "M")
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"] in ("call", "module", "op")
    names = {e["name"]: e["args"]["name"] for e in written["traceEvents"] if e["ph"] == "M"}
    assert names == {"process_name": "coreai-torch", "thread_name": "main"}


def test_events_nest(written):
    around = []  # ends of the open events
    for event in sorted(complete(written), key=lambda e: (e["ts"], -e["dur"])):
        begin, end = event["ts"], event["ts"] + event["dur"]
        while around and around[-1] <= begin + 1e-6:
            around.pop()
        assert not around or end <= around[-1] + 1e-3, event
        around.append(end)


def test_module_precedes_its_only_op(written):
    events = complete(written)
    for first, second in itertools.pairwise(events):
        if (first["ts"], first["dur"]) == (second["ts"], second["dur"]):
            assert (first["cat"], second["cat"]) != ("op", "module")
            depths = [e["args"].get("module", "").count(".") for e in (first, second)]
            assert depths[0] <= depths[1]


def test_each_call_has_the_modules_and_ops_in_order(written):
    calls = [e for e in complete(written) if e["cat"] == "call"]
    assert [call["name"] for call in calls] == ["call 1", "call 2"]
    for call in calls:
        inside = [
            e
            for e in complete(written)
            if call["ts"] <= e["ts"] and e["ts"] + e["dur"] <= call["ts"] + call["dur"] + 1e-3
        ]
        modules = sorted((e for e in inside if e["cat"] == "module"), key=lambda e: e["ts"])
        paths = [e["args"]["module"] for e in modules if "." in e["args"]["module"]]
        assert paths == ["0.dense", "0.norm", "1.dense", "1.norm"]
        assert any(e["name"] == "batch_matmul" for e in inside if e["cat"] == "op")


def test_num_runs_must_be_positive():
    program, x = converted()
    with pytest.raises(ConversionError, match="num_runs is 0"):
        asyncio.run(trace_coreai_program(program, {"x": x}, num_runs=0))
