"""Promises of the seed documents about lowerings that a user registers."""

import coreai.authoring  # first: the dialects of coreai-core 1.0.0b3 have an import cycle
import numpy as np
import pytest
import torch
from compat.programs import assert_close, exported, graphs
from coreai._compiler.dialects import coreai as dialect
from coreai._compiler.ir import Location, Value
from runtime import Descriptor, descriptor, run
from torch import nn

from coreai_torch import TorchConverter, generate_composite_decl, get_decomp_table
from coreai_torch._aten_to_core import _aten_to_core_resolver
from coreai_torch._utils import get_operand, get_operands

# Another namespace than `my_lib::scaled_add` of the documents, which can be defined only once.


@torch.library.custom_op("promises::scaled_add", mutates_args=())
def scaled_add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    return x + scale * y


@scaled_add.register_fake
def _(x, y, scale):
    return torch.empty_like(x)


@torch.library.custom_op("promises::sum_and_difference", mutates_args=())
def sum_and_difference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + y, x - y


@sum_and_difference.register_fake
def _(x, y):
    return torch.empty_like(x), torch.empty_like(x)


class ScaledAdd(nn.Module):
    def forward(self, x, y):
        return torch.ops.promises.scaled_add(x, y, 0.5)


class SumAndDifference(nn.Module):
    def forward(self, x, y):
        total, difference = torch.ops.promises.sum_and_difference(x, y)
        return difference * 2, total


class Relu(nn.Module):
    def forward(self, x):
        return torch.relu(x)


X, Y = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[10.0, 20.0, -30.0]])


def lower_scaled_add(values_map, node, loc):
    x, y = get_operands(values_map, node, [0, 1], loc)
    scale = dialect.constant(node.args[2], dtype=x.type.element_type)
    return dialect.broadcasting_add(x, dialect.broadcasting_mul(y, scale, loc=loc), loc=loc)


def lower_negated(values_map, node, loc):
    """Lower to wrong numbers on purpose, to detect that this lowering is used."""
    x = get_operand(values_map, node, 0, loc)
    return dialect.broadcasting_mul(x, dialect.constant(-1.0, dtype=x.type.element_type), loc=loc)


def program_of(converter, module, *args, **names):
    program = converter.add_exported_program(exported(module, *args), **names).to_coreai()
    program.optimize()
    return program


# A custom op -------------------------------------------------------------------------------------


def test_decomposition_keeps_a_custom_op():
    targets = [node.target for node in exported(ScaledAdd(), X, Y).graph.nodes]
    assert targets.count(torch.ops.promises.scaled_add.default) == 1


def test_op_without_lowering_raises_with_its_name():
    with pytest.raises(ValueError, match=r"promises.*scaled_add") as error:
        program_of(TorchConverter(), ScaledAdd(), X, Y)
    assert "register_torch_lowering" in str(error.value)


@pytest.mark.parametrize("name", ["promises::scaled_add.default", "promises::scaled_add"])
def test_registered_lowering_is_used(name):
    converter = TorchConverter()
    assert converter.register_torch_lowering(name)(lower_scaled_add) is lower_scaled_add
    program = program_of(
        converter, ScaledAdd(), X, Y, input_names=["x", "y"], output_names=["result"]
    )
    assert descriptor(program) == Descriptor(["x", "y"], ["result"], [])
    assert_close(run(program, {"x": X, "y": Y})["result"], X + 0.5 * Y)


def test_lowering_receives_values_node_and_location():
    converter, seen = TorchConverter(), {}

    @converter.register_torch_lowering("promises::scaled_add.default")
    def lower(values_map, node, loc):
        seen.update(values=dict(values_map), node=node, loc=loc)
        return lower_scaled_add(values_map, node, loc)

    program_of(converter, ScaledAdd(), X, Y)
    assert isinstance(seen["node"], torch.fx.Node)
    assert [type(arg) for arg in seen["node"].args] == [torch.fx.Node, torch.fx.Node, float]
    assert seen["node"].args[2] == 0.5
    assert tuple(seen["node"].meta["val"].shape) == (1, 3)
    assert isinstance(seen["loc"], Location)
    assert {"x", "y"} <= set(seen["values"])
    assert all(isinstance(seen["values"][name], Value) for name in ("x", "y"))


def test_several_results_are_returned_as_a_list():
    converter, seen = TorchConverter(), {}

    @converter.register_torch_lowering("promises::sum_and_difference.default")
    def lower(values_map, node, loc):
        x, y = get_operands(values_map, node, [0, 1], loc)
        return [dialect.broadcasting_add(x, y, loc=loc), dialect.broadcasting_sub(x, y, loc=loc)]

    @converter.register_torch_lowering("aten::mul.Tensor", allow_override=True)
    def look(values_map, node, loc):
        seen.update(values_map)
        x, factor = get_operands(values_map, node, [0, 1], loc)
        return dialect.broadcasting_mul(x, dialect.cast(factor, x.type.element_type), loc=loc)

    program = program_of(converter, SumAndDifference(), X, Y, output_names=["twice", "total"])
    assert {"sum_and_difference#0", "sum_and_difference#1"} <= set(seen)
    outputs = run(program, {"x": X, "y": Y})
    assert_close(outputs["twice"], (X - Y) * 2)
    assert_close(outputs["total"], X + Y)


# Names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["scaled_add", "promises.scaled_add", "::scaled_add", "promises::", ""]
)
def test_malformed_op_name_raises(name):
    with pytest.raises(ValueError, match="namespace::op"):
        TorchConverter().register_torch_lowering(name)


@pytest.mark.parametrize("namespace", ["aten", "higher_order", "coreai", "coreaix"])
def test_reserved_namespaces_need_allow_override(namespace):
    with pytest.raises(ValueError, match="allow_override") as error:
        TorchConverter().register_torch_lowering(f"{namespace}::some_op.default")
    assert namespace in str(error.value)
    TorchConverter().register_torch_lowering(f"{namespace}::some_op.default", allow_override=True)


@pytest.mark.parametrize("again", ["promises::scaled_add.default", "promises::scaled_add"])
def test_second_lowering_needs_allow_override(again):
    converter = TorchConverter()
    converter.register_torch_lowering("promises::scaled_add.default")(lower_negated)
    with pytest.raises(ValueError, match="allow_override"):
        converter.register_torch_lowering(again)
    converter.register_torch_lowering(again, allow_override=True)(lower_scaled_add)
    program = program_of(converter, ScaledAdd(), X, Y, output_names=["result"])
    assert_close(run(program, {"x": X, "y": Y})["result"], X + 0.5 * Y)


# Overrides ---------------------------------------------------------------------------------------


def test_override_applies_to_this_converter_only():
    before = dict(_aten_to_core_resolver)
    converter = TorchConverter()
    converter.register_torch_lowering("aten::relu.default", allow_override=True)(lower_negated)
    overridden = program_of(converter, Relu(), X, output_names=["y"])
    untouched = program_of(TorchConverter(), Relu(), X, output_names=["y"])
    assert_close(run(overridden, {"x": X})["y"], -X)
    assert_close(run(untouched, {"x": X})["y"], torch.relu(X))
    assert dict(_aten_to_core_resolver) == before


def test_custom_lowering_belongs_to_one_converter():
    TorchConverter().register_torch_lowering("promises::scaled_add.default")(lower_scaled_add)
    with pytest.raises(ValueError, match=r"promises.*scaled_add"):
        program_of(TorchConverter(), ScaledAdd(), X, Y)


@pytest.mark.parametrize("entrypoints", [None, ["main"]])
def test_clear_keeps_lowerings(entrypoints):
    converter = TorchConverter()
    converter.register_torch_lowering("aten::relu.default", allow_override=True)(lower_negated)
    converter.add_exported_program(exported(Relu(), X))
    converter.clear(entrypoints=entrypoints)
    program = program_of(converter, Relu(), X, output_names=["y"])
    assert_close(run(program, {"x": X})["y"], -X)


# Adaptive pooling, the documents' example --------------------------------------------------------


class Pool(nn.Module):
    def __init__(self, *size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x):
        return nn.functional.adaptive_avg_pool2d(x, self.size)


def lower_adaptive_avg_pool2d_static(values_map, node, loc):
    x = get_operand(values_map, node, 0, loc)
    output_h, output_w = node.args[1]
    input_h, input_w = x.type.shape[2], x.type.shape[3]
    stride_h, stride_w = input_h // output_h, input_w // output_w
    kernel_h = input_h - (output_h - 1) * stride_h
    kernel_w = input_w - (output_w - 1) * stride_w
    return dialect.broadcasting_divide(
        dialect.sumpool2d(
            x,
            kernel_size=np.array([kernel_h, kernel_w], dtype=np.uint32),
            strides=np.array([stride_h, stride_w], dtype=np.uint32),
            dilation=dialect.constant([1, 1], dtype=np.uint32),
        ),
        dialect.cast(float(kernel_h * kernel_w), x.type.element_type),
    )


@pytest.mark.parametrize("size", [(1, 1), (2, 4)])
def test_documented_override_of_adaptive_pooling(size):
    converter, calls = TorchConverter(), []

    @converter.register_torch_lowering("aten::_adaptive_avg_pool2d.default", allow_override=True)
    def lower(values_map, node, loc):
        calls.append(node)
        return lower_adaptive_avg_pool2d_static(values_map, node, loc)

    x = torch.randn(1, 3, 8, 8)
    program = program_of(converter, Pool(*size), x, output_names=["y"])
    assert len(calls) == 1
    assert_close(run(program, {"x": x})["y"], Pool(*size)(x))


@pytest.mark.parametrize("size", [(1, 1), (2, 4), (3, 5)])
def test_default_pooling_with_sizes_that_do_not_divide(size):
    x = torch.randn(1, 3, 8, 8)
    program = program_of(TorchConverter(), Pool(*size), x, output_names=["y"])
    assert_close(run(program, {"x": x})["y"], Pool(*size)(x))


@pytest.mark.parametrize("size", [(1, 1), (2, 4)])
def test_default_pooling_with_dynamic_shapes(size):
    height, width = torch.export.Dim("height", min=2, max=64), torch.export.Dim("width", min=4)
    raw = torch.export.export(
        Pool(*size), (torch.randn(1, 3, 8, 8),), dynamic_shapes=({2: height, 3: width},)
    )
    converter = TorchConverter().add_exported_program(
        raw.run_decompositions(get_decomp_table()), output_names=["y"]
    )
    program = converter.to_coreai()
    for x in (torch.randn(1, 3, 7, 9), torch.randn(1, 3, 12, 4)):
        assert_close(run(program, {"x": x})["y"], Pool(*size)(x))


# A composite of the user -------------------------------------------------------------------------


def test_lowering_can_build_a_composite():
    converter = TorchConverter()

    @converter.register_torch_lowering("promises::scaled_add.default")
    def lower(values_map, node, loc):
        x = get_operand(values_map, node, 0, loc)
        declaration = generate_composite_decl(
            x.context,
            op_name="scaled_add",
            input_names=["x", "y"],
            output_names=["output"],
            op_attributes={"scale": node.args[2], "version": 1},
        )
        text = str(declaration)
        assert '"scaled_add"' in text
        assert 'input_names = ["x", "y"]' in text
        assert 'output_names = ["output"]' in text
        assert "scale = 5.000000e-01 : f32" in text
        assert "version = 1 : si64" in text
        return lower_scaled_add(values_map, node, loc)

    program = program_of(converter, ScaledAdd(), X, Y, output_names=["result"])
    assert list(graphs(program)) == ["main"]
    assert_close(run(program, {"x": X, "y": Y})["result"], X + 0.5 * Y)


def test_composite_declaration_has_version_one_by_default():
    with coreai.authoring.Context() as context:
        made = generate_composite_decl(context, "scaled_add", ["x"], ["output"], {"scale": 0.5})
    assert "version = 1 : si64" in str(made)
