"""The printed module equals the listing in the guide."""

import re

import pytest
import torch
from boundary import Model, composite_spec, composites, converted, graphs
from torch import nn

from coreai_torch import ExternalizeSpec
from coreai_torch.composite_ops import RMSNormImpl

X = torch.linspace(-2, 3, 10).reshape(1, 10)
RMS_NORM = ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"])


class Guide(nn.Module):
    """`linear(norm(x))`, the model of the externalization guide."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 10))
        self.norm = RMSNormImpl()
        self.linear = nn.Linear(10, 5)

    def forward(self, x):
        return self.linear(self.norm(x, self.weight))


def header(program, name):
    (line,) = (line for line in str(program).splitlines() if re.search(rf"graph .*@{name}", line))
    return line.strip()


def test_composite():
    program = converted(Guide(), X, modules=[RMS_NORM])
    (graph,) = composites(program, "rms_norm")
    assert re.fullmatch(r"norm\.rms_norm_[0-9a-f]{8}", graph.name)
    assert header(program, graph.name) == (
        f"coreai.graph private noinline @{graph.name}("
        '%arg0: tensor<1x10xf32> {coreai.name = "input"}, '
        '%arg1: tensor<10xf32> {coreai.name = "scale"}) '
        '-> (tensor<1x10xf32> {coreai.name = "output"}) attributes {'
        'composite_decl = #coreai.composite_declaration<"rms_norm" = {'
        'input_names = ["input", "scale"], '
        "op_attrs = {axes = -1 : si64, eps = 9.99999974E-6 : f32, version = 1 : si64}, "
        'output_names = ["output"]}>} {'
    )
    assert re.search(
        rf"coreai\.invoke @{re.escape(graph.name)}\(%arg0, %\w+\)\s+: "
        r"\(tensor<1x10xf32>, tensor<10xf32>\) -> tensor<1x10xf32>",
        graphs(program)["main"].body,
    )


def test_boundary_without_declaration():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 10))
            self.norm = RMSNormImpl()

        def forward(self, x):
            return self.norm(x, self.weight)

    model = Model(lambda m, x: m.linear(m.norm(x)), norm=Norm(), linear=nn.Linear(10, 5))
    program = converted(model, X, modules=[Norm])
    (name,) = graphs(program)["main"].callees
    assert re.fullmatch(r"norm_[0-9a-f]{8}", name)
    assert header(program, name) == (
        f'coreai.graph noinline @{name}(%arg0: tensor<1x10xf32> {{coreai.name = "x"}}) '
        '-> (tensor<1x10xf32> {coreai.name = "output"}) {'
    )


def test_declaration_survives_optimize_and_save(tmp_path):
    program = converted(Guide(), X, modules=[RMS_NORM])
    (before,) = composites(program, "rms_norm")
    program.optimize()
    asset = program.save_asset(tmp_path / "guide.aimodel")
    for after in (program, asset.program):
        (graph,) = composites(after, "rms_norm")
        assert (graph.inputs, graph.outputs, graph.attrs) == (
            before.inputs,
            before.outputs,
            before.attrs,
        )
        assert graph.private
        assert graph.noinline


class Holds(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return x * 2


ATTRIBUTES = {
    "integer": (-3, "-3 : si64"),
    "largest_integer": (2**63 - 1, "9223372036854775807 : si64"),
    "float": (0.25, "2.500000e-01 : f32"),
    "infinity": (float("inf"), "0x7F800000 : f32"),
    "true": (True, "true"),
    "string": ('a "b" \\', '"a \\22b\\22 \\\\"'),
    "integers": ([1, 2], "[1 : si64, 2 : si64]"),
    "floats": ((0.5, 1.5), "[5.000000e-01 : f32, 1.500000e+00 : f32]"),
    "flags": ([True, False], "[true, false]"),
    "strings": (["a", "b"], '["a", "b"]'),
    "nothing_in_a_list": ([], "[]"),
    "lists": ([[1], [2.0]], "[[1 : si64], [2.000000e+00 : f32]]"),
    "dictionary": ({"a": 1}, "{a = 1 : si64}"),
    "shape": (torch.Size([2, 3]), "[2 : si64, 3 : si64]"),
    "dtype": (torch.float16, '"float16"'),
    "tensor_of_one": (torch.tensor(4), "4 : si64"),
    "numpy_number": (X.numpy()[0, 0], "-2.000000e+00 : f32"),
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_attribute_types(kind):
    value, printed = ATTRIBUTES[kind]
    model = Model(lambda m, x: m.op(x), op=Holds(value))
    program = converted(model, X, modules=[composite_spec(Holds, "holds", "value")])
    (name,) = graphs(program)["main"].callees
    assert f"op_attrs = {{value = {printed}, version = 1 : si64}}" in header(program, name)


def test_attribute_that_is_none_is_omitted():
    model = Model(lambda m, x: m.op(x), op=Holds(None))
    program = converted(model, X, modules=[composite_spec(Holds, "holds", "value")])
    assert composites(program, "holds")[0].attrs == {"version": "1 : si64"}
