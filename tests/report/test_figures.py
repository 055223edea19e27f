"""The numbers of a report: times, shares, parameters, multiply-adds, shared weights, versions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from report.pages import F32, WEIGHT, function, layered, op, program, timing
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.reading import Place, Type, read
from coreai_torch.asset.summary import summary_of
from coreai_torch.debugging.benchmarker import BenchmarkResult, OperationTiming
from coreai_torch.formatting import duration, quantity, shares
from coreai_torch.report.costs import Costs, multiply_adds
from coreai_torch.report.graph_data import graph_data
from coreai_torch.report.html_page import html_page, page_of
from coreai_torch.report.sections import origin
from coreai_torch.report.times import Times


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3.2e-9, "3.2 ns"),
        (0.00034, "340 µs"),
        (0.00099951, "1.0 ms"),
        (0.0012, "1.2 ms"),
        (0.0119, "12 ms"),
        (0.9996, "1.0 s"),
        (3.44, "3.4 s"),
        (9.96, "10 s"),
        (125, "2 min 5 s"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (950, "950"), (11_689_512, "11.7 M"), (1.81e9, "1.81 G")]
)
def test_quantity(count, text):
    assert quantity(count) == text


@pytest.mark.parametrize("parts", [[1, 1, 1], [5], [3.3, 7.7, 1.234, 9, 2, 2, 2], [1e-9, 1, 1, 1]])
def test_shares_add_up_to_100_percent(parts):
    texts = shares(parts)
    assert math.fsum(float(text.removesuffix(" %")) for text in texts) == pytest.approx(100)
    for text, part in zip(texts, parts, strict=True):
        assert abs(float(text.removesuffix(" %")) - 100 * part / sum(parts)) < 0.1


def test_shares_of_nothing_are_empty():
    assert shares([0, 0]) == ["", ""]


@pytest.mark.parametrize("most", [3, 8, 24])
def test_times_by_module_and_by_kind_cover_the_total_without_overlap(most):
    times = Times(read_ := layered(20, 5), timing(read_))
    for parts in (times.by_module(most), times.by_kind(most)):
        assert len(parts) <= most
        assert sum(part.milliseconds for part in parts) == pytest.approx(times.total)
    assert times.by_module(3)[-1].name.endswith("other modules")


def test_times_by_kind_name_the_op_and_count_it():
    times = Times(read_ := layered(2, 3), timing(read_))
    parts = {part.name: (part.milliseconds, part.ops) for part in times.by_kind(12)}
    assert parts == {"batch_matmul": (2.0, 2), "sin": (2.0, 2), "sqrt": (1.0, 1)}


def matmul(*shapes):
    types = tuple(Type("tensor", shape, "f32") for shape in shapes)
    made = op("decomposable.broadcasting_batch_matmul", (0, 1), (2,), types[2:])
    return replace(made, operand_types=types[:2])


def convolution(name, x, weight, result):
    types = tuple(Type("tensor", shape, "f32") for shape in (x, weight, result))
    return replace(op(name, (0, 1), (2,), types[2:]), operand_types=types[:2])


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (matmul((2, 3, 4), (4, 5), (2, 3, 5)), 2 * 3 * 4 * 5),
        (matmul((-1, 3, 4), (4, 5), (-1, 3, 5)), 3 * 4 * 5),  # a dynamic size counts as 1
        (convolution("conv2d", (1, 3, 8, 8), (6, 3, 3, 3), (1, 6, 6, 6)), 6**3 * 27),
        (convolution("conv2d", (1, 4, 8, 8), (4, 1, 3, 3), (1, 4, 6, 6)), 4 * 36 * 9),
        (convolution("conv_transpose2d", (1, 3, 4, 4), (3, 2, 2, 2), (1, 2, 8, 8)), 48 * 8),
        (op("sin", (0,), (1,), (F32,)), 0),
    ],
    ids=["matmul", "dynamic", "convolution", "depthwise", "transposed", "sin"],
)
def test_multiply_adds(made, count):
    assert multiply_adds(made) == count


def test_multiply_adds_equal_those_of_torch():
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, groups=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 10)
    ).eval()
    x = torch.randn(2, 3, 16, 16)
    with FlopCounterMode(display=False) as counter:
        model(x)
    costs = Costs(read(converted(model, x)))
    assert costs.multiply_adds("main") == counter.get_total_flops() // 2
    assert costs.total_parameters == sum(p.numel() for p in model.parameters())


def converted(model, *args):
    exported = torch.export.export(model.eval(), args).run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(exported).to_coreai()


def test_calls_of_a_graph_count_its_multiply_adds_each_time():
    inner = function("dot", [matmul((1, 16), (16, 16), (1, 16))], is_private=True, composite="dot")
    calls = [op("invoke", (n,), (n + 1,), (F32,), attributes={"callee": "dot"}) for n in range(3)]
    assert Costs(program(function("main", calls), inner)).multiply_adds("main") == 3 * 256


def constant(value, blob, type_=WEIGHT):
    return replace(op("constant", (), (value,), (type_,)), blob=blob)


def test_shared_weights_count_once():
    scalar, index = Type("tensor", (), "f32"), Type("tensor", (16, 16), "si32")
    ops = [
        constant(1, "w"),
        constant(2, "w"),
        constant(3, "w.1"),  # a transposed copy
        constant(4, ""),
        constant(5, "", scalar),
        constant(6, "", index),
    ]
    read_ = program(function("main", ops), function("other", [constant(1, "w")]))
    assert Costs(read_).total_parameters == 2 * 256, "w and the constant without a name"
    summary = summary_of(read_, None)
    assert summary.weights == {"f32": (4, 3 * 1024 + 4), "si32": (1, 1024)}
    rows = [row for f in graph_data(read_, {})["functions"] for row in f["ops"][:-1]]
    assert [row.get("shared", False) for row in rows] == [False, True] + [False] * 4 + [True]
    assert sum(row.get("parameters", 0) for row in rows) == 512


def test_weights_that_two_entry_points_share_are_stored_once():
    layer = nn.Linear(64, 64, bias=False)
    converter = TorchConverter()
    for name, rows in (("first", 2), ("second", 3)):
        exported = torch.export.export(layer.eval(), (torch.ones(rows, 64),))
        exported = exported.run_decompositions(get_decomp_table())
        converter.add_exported_program(exported, entrypoint_name=name)
    read_ = read(converter.to_coreai())
    assert Costs(read_).total_parameters == 64 * 64


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x))


@pytest.mark.parametrize("mode", list(TorchConverter.Mode), ids=lambda mode: mode.name)
def test_a_convolution_is_listed_as_itself_when_a_batch_norm_was_fused(mode):
    x = torch.randn(1, 3, 8, 8)
    exported = torch.export.export(Normalized().eval(), (x,)).run_decompositions(get_decomp_table())
    made = TorchConverter(mode).add_exported_program(exported).to_coreai()
    (found,) = (o for o in read(made).functions["main"].body.ops if o.name == "coreai.conv2d")
    assert found.place.module == "conv"
    if mode is TorchConverter.Mode.DEBUG:
        assert found.place.target == "aten.convolution.default"
        assert "batch_norm" in found.place.fx_node, "the node whose value it computes"


def test_the_timed_entry_point_is_named():
    read_ = program(
        function("encode", [op("sin", (0,), (1,), (F32,))]),
        function("decode", [op("cos", (0,), (1,), (F32,))]),
    )
    measured = BenchmarkResult((3.4,), (OperationTiming(2, "coreai.cos", "", 3000.0, 1),), "decode")
    page = page_of(read_, "net", timing=measured)
    assert "Timed entry point: <code>decode</code>. A call takes 3.4 s" in page
    assert "per call of decode" in page


def test_the_page_names_versions_and_date(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    made = origin()
    assert made.lines()[0] == "14 November 2023, 22:13 UTC"
    versions = dict(made.versions)
    assert versions["torch"] == torch.__version__
    page = html_page(converted(nn.ReLU(), torch.ones(2)))
    assert "14 November 2023, 22:13 UTC" in page
    assert f"torch {torch.__version__}" in page
    assert "coreai-torch 0." in page


def test_findings_of_lint_are_listed():
    page = html_page(converted(nn.ReLU(), torch.ones(2)))
    assert 'id="hazards"' in page
    assert ">Lint</h2>" in page


def test_rewrites_of_the_conversion_are_listed():
    page = page_of(layered(1, 2), "net", rewrites={"<b>": 1234})
    assert 'id="rewrites"' in page
    assert "<td>&lt;b&gt;</td><td></td><td>1,234</td>" in page
    assert 'id="rewrites"' not in page_of(layered(1, 2), "net")


def test_the_line_of_the_model_comes_before_the_lines_of_torch():
    torch_file = "/site-packages/torch/nn/modules/conv.py"
    callers = (("/models/net.py", 12), ("/models/net.py", 40))
    place = Place("conv", torch_file, 565, "conv", "aten.convolution.default", None, callers)
    data = graph_data(program(function("main", [op("sin", (0,), (1,), (F32,), place)])), {})
    row = data["functions"][0]["ops"][0]
    assert (data["strings"][row["file"]], row["line"]) == ("/models/net.py", 12)
    assert data["strings"][row["callers"]] == f"{torch_file}:565\n/models/net.py:40"


def test_source_lines_are_included_on_request(tmp_path):
    model, secret = tmp_path / "net.py", tmp_path / "secret.txt"
    model.write_text("".join(f"line_{n} = {n}\n" for n in range(1, 21)))
    secret.write_text("password\n" * 9)
    places = [Place("a", str(model), 2), Place("b", str(secret), 3), Place("c", "/none.py", 1)]
    ops = [op("sin", (n,), (n + 1,), (F32,), place) for n, place in enumerate(places)]
    read_ = program(function("main", ops))
    shown = page_of(read_, "net", code=True)
    assert f'"{model}":{{"2":[1,"line_1 = 1","line_2 = 2"' in shown
    assert "line_6 = 6" not in shown
    assert "password" not in shown, "only Python files are read"
    assert "line_2 = 2" not in page_of(read_, "net")
