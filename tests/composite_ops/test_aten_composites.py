"""torch ops that convert to composites: the declaration of each, and its numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from compat.programs import composites, graphs
from runtime import descriptor, run
from torch import nn
from torch.nn import functional as F

from coreai_torch import TorchConverter, generate_composite_decl, get_decomp_table

aten = torch.ops.aten


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Contract:
    """The parts that the compiler reads: name, operands, printed attributes."""

    name: str
    inputs: list[str]
    attrs: dict[str, str]
    call: Any  # a module, or a function of the tensors
    given: tuple[torch.Tensor, ...]
    op: Any  # the overload that the decomposition table must not contain


def with_random_state(module):
    """Set weights and statistics to values other than the initial ones."""
    for seed, tensor in enumerate((*module.parameters(), *module.buffers())):
        if tensor.is_floating_point():
            tensor.data = drawn(seed, *tensor.shape).abs() + 0.5
    return module.eval()


EPS = "9.99999974E-6 : f32"
AFFINE = ["input", "gamma", "beta"]
IMAGE = drawn(30, 2, 4, 6, 6)
SMALL_HEADS = tuple(drawn(seed, 1, 2, 3, 4) for seed in (31, 32, 33))
POOL = {"ceil_mode": "false", "count_include_pad": "true"}


def sdpa(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


CONTRACTS = {
    "batch_norm": Contract(
        "batch_norm",
        [*AFFINE, "mean", "variance"],
        {"eps": EPS},
        with_random_state(nn.BatchNorm2d(4)),
        (IMAGE,),
        aten._native_batch_norm_legit_no_training.default,
    ),
    "group_norm": Contract(
        "group_norm",
        ["input", "weight", "bias"],
        {"num_groups": "2 : si64", "num_channels": "4 : si64", "eps": EPS},
        with_random_state(nn.GroupNorm(2, 4)),
        (IMAGE,),
        aten.native_group_norm.default,
    ),
    "instance_norm": Contract(
        "instance_norm",
        AFFINE,
        {"eps": EPS},
        with_random_state(nn.InstanceNorm2d(4, affine=True)),
        (IMAGE,),
        aten.instance_norm.default,
    ),
    "layer_norm": Contract(
        "layer_norm",
        AFFINE,
        {"axes": "[2 : si64, 3 : si64]", "eps": EPS},
        with_random_state(nn.LayerNorm((6, 6))),
        (IMAGE,),
        aten.native_layer_norm.default,
    ),
    "hard_sigmoid": Contract(
        "hard_sigmoid", ["input"], {}, nn.Hardsigmoid(), (IMAGE * 3,), aten.hardsigmoid.default
    ),
    "linalg_vector_norm": Contract(
        "linalg_vector_norm",
        ["input"],
        {"ord": "3.000000e+00 : f32", "axes": "[1 : si64]", "keep_dim": "true"},
        lambda x: torch.linalg.vector_norm(x, 3, dim=1, keepdim=True),
        (IMAGE,),
        aten.linalg_vector_norm.default,
    ),
    "log_softmax": Contract(
        "log_softmax",
        ["input"],
        {"axis": "1 : si64"},
        nn.LogSoftmax(1),
        (IMAGE,),
        aten._log_softmax.default,
    ),
    "pixel_shuffle": Contract(
        "pixel_shuffle",
        ["input"],
        {"upscale_factor": "2 : si64"},
        nn.PixelShuffle(2),
        (IMAGE,),
        aten.pixel_shuffle.default,
    ),
    "avg_pool1d": Contract(
        "avg_pool1d",
        ["input"],
        {**POOL, "kernel_size": "[3 : si64]", "stride": "[2 : si64]", "padding": "[1 : si64]"},
        nn.AvgPool1d(3, 2, 1),
        (IMAGE[0],),
        aten.avg_pool1d.default,
    ),
    "avg_pool2d": Contract(
        "avg_pool2d",
        ["input"],
        {**POOL, "kernel_size": "[2 : si64, 2 : si64]", "stride": "[2 : si64, 2 : si64]"},
        nn.AvgPool2d(2),
        (IMAGE,),
        aten.avg_pool2d.default,
    ),
    "avg_pool3d": Contract(
        "avg_pool3d",
        ["input"],
        {**POOL, "kernel_size": "[2 : si64, 2 : si64, 2 : si64]"},
        nn.AvgPool3d(2),
        (IMAGE,),
        aten.avg_pool3d.default,
    ),
    "rms_norm": Contract(
        "rms_norm",
        ["input", "scale"],
        {"axes": "-1 : si64", "eps": EPS},
        with_random_state(nn.RMSNorm(6, eps=1e-5)),
        (IMAGE,),
        aten.rms_norm.default,
    ),
    "scaled_dot_product_attention": Contract(
        "scaled_dot_product_attention",
        ["query", "key", "value"],
        {"is_causal": "false", "window_size": "0 : si64"},
        sdpa,
        SMALL_HEADS,
        aten.scaled_dot_product_attention.default,
    ),
}


class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *given):
        return self.call(*given)


def converted(model, given):
    program = torch.export.export(model.eval(), given).run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(program, output_names=["y"]).to_coreai()


def assert_agrees(program, model, given):
    for optimized in (False, True):
        if optimized:
            program.optimize()
        fed = dict(zip(descriptor(program).input_names, given, strict=True))
        with torch.no_grad():
            wanted = model(*given)
        torch.testing.assert_close(run(program, fed)["y"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("which", CONTRACTS)
def test_composite_declaration(which):
    row = CONTRACTS[which]
    model = Calls(row.call)
    program = converted(model, row.given)
    (graph,) = composites(program, row.name)
    assert graph.private
    assert graph.noinline
    assert graphs(program)["main"].callees == [graph.name]
    assert graph.inputs == row.inputs
    assert graph.outputs == ["output"]
    assert graph.attrs["version"] == "1 : si64"
    assert {name: graph.attrs[name] for name in row.attrs} == row.attrs
    assert_agrees(program, model, row.given)


@pytest.mark.parametrize("which", CONTRACTS)
def test_decomposition_table_does_not_contain_the_op(which):
    assert CONTRACTS[which].op not in get_decomp_table()


def test_norm_that_rounds_once_has_a_float32_scale():
    """The composite rounds before a narrow scale, as Llama does; torch's op does not."""
    model = with_random_state(nn.RMSNorm(6, eps=1e-5)).bfloat16()
    program = converted(model, (IMAGE.bfloat16(),))
    (graph,) = composites(program, "rms_norm")
    assert f"@{graph.name}(%arg0: tensor<2x4x6x6xbf16>" in str(program)
    assert re.search(rf"@{graph.name}\(.*%arg1: tensor<6xf32>", str(program))


def test_equal_calls_share_one_graph():
    model = Calls(lambda x: F.log_softmax(F.log_softmax(x, 1), 1) + F.log_softmax(x, 2))
    program = converted(model, (IMAGE,))
    first, again, other = graphs(program)["main"].callees
    assert first == again != other
    assert_agrees(program, model, (IMAGE,))


# A composite defined by the caller ---------------------------------------------------------------


@torch.library.custom_op("composite_tests::leaky", mutates_args=())
def leaky(x: torch.Tensor, slope: float) -> torch.Tensor:
    return F.leaky_relu(x, slope)


@leaky.register_fake
def _(x, slope):
    return torch.empty_like(x)


def test_custom_lowering_can_declare_a_composite():
    from coreai._compiler.dialects import coreai as dialect
    from coreai._compiler.ir import InsertionPoint

    from coreai_torch._utils import get_operands

    converter = TorchConverter()

    @converter.register_torch_lowering("composite_tests::leaky")
    def lower(values_map, node, loc):
        x, slope = get_operands(values_map, node, [0, 1], loc)
        module = InsertionPoint.current.block.owner.parent
        attrs = {"slope": node.args[1], "version": 2}
        with InsertionPoint.at_block_begin(module.regions[0].blocks[0]):
            graph = dialect.GraphOp(
                "leaky",
                [x.type, slope.type],
                [],
                ["x", "slope"],
                [],
                private=True,
                no_inline=True,
                composite_decl=generate_composite_decl(
                    loc.context, "leaky_relu", ["x", "slope"], ["output"], attrs
                ),
            )
        with InsertionPoint(graph.entry_block):
            inner, factor = graph.arguments
            scaled = dialect.broadcasting_mul(inner, factor)
            graph.outputs_spec = [("output", dialect.maximum(inner, scaled))]
        return graph(x, slope)[0]

    model = Calls(lambda x: leaky(x, 0.25) + 1)
    exported = torch.export.export(model, (IMAGE,)).run_decompositions(get_decomp_table())
    program = converter.add_exported_program(exported, output_names=["y"]).to_coreai()
    (graph,) = composites(program, "leaky_relu")
    assert (graph.inputs, graph.outputs) == (["x", "slope"], ["output"])
    assert graph.attrs == {"slope": "2.500000e-01 : f32", "version": "2 : si64"}
    assert_agrees(program, model, (IMAGE,))


def test_composite_without_a_name_raises():
    with pytest.raises(ValueError, match="op_name is None and composite_name None"):
        generate_composite_decl(None, input_names=["x"], output_names=["output"])
