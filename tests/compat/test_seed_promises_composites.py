"""Promises of the seed documents about externalized submodules and composite ops."""

import dataclasses

import pytest
import torch
from compat.programs import assert_close, composites, exported, externalized, graphs
from runtime import descriptor, run
from torch import Tensor, nn

from coreai_torch import ExternalizeSpec, TorchConverter
from coreai_torch.composite_ops import SDPA, GatedDeltaUpdate, GatherMM, RMSNorm, RMSNormImpl, RoPE

RMS_NORM = ExternalizeSpec(
    target_class=RMSNormImpl, composite_op_name="rms_norm", composite_attrs=["axes", "eps"]
)
X = torch.linspace(-2, 3, 10).reshape(1, 10)


class OwnNorm(nn.Module):
    """The wrapper class of the guides, which owns the scale."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, dim))
        self.norm = RMSNormImpl(eps=eps)

    def forward(self, x):
        return self.norm(x, self.weight)


class ModelWithNorm(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.linear = nn.Linear(10, 5)

    def forward(self, x):
        return self.linear(self.norm(x))


def only_composite(program, name):
    (found,) = composites(program, name)
    return found


# Composite externalization -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return ModelWithNorm(OwnNorm(10)).eval()


@pytest.fixture(scope="module")
def program(model):
    return externalized(model, X, modules=[RMS_NORM])


def test_submodule_becomes_a_private_graph_called_from_main(program):
    graph = only_composite(program, "rms_norm")
    assert graph.private
    assert graph.noinline
    assert graphs(program)["main"].callees == [graph.name]


def test_graph_name_is_module_path_and_hash(program):
    name = only_composite(program, "rms_norm").name
    assert name.startswith("norm.norm")  # the path of the RMSNormImpl inside its wrapper
    assert len(name) > len("norm.norm")


def test_declaration_records_name_inputs_outputs_and_attributes(program):
    graph = only_composite(program, "rms_norm")
    assert graph.inputs == ["input", "scale"]
    assert graph.outputs == ["output"]
    assert graph.attrs == {
        "axes": "-1 : si64",
        "eps": "9.99999974E-6 : f32",
        "version": "1 : si64",
    }


def test_scale_is_an_argument(program):
    graph = only_composite(program, "rms_norm")
    assert graph.argument_count == 2
    constants = [line for line in graph.body.splitlines() if "coreai.constant" in line]
    assert not any("tensor<10xf32>" in line for line in constants)


def test_program_equals_torch(program, model):
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"x": X})[output], model(X))


def test_externalization_does_not_change_the_ports_of_main(program):
    assert descriptor(program).input_names == ["x"]


def test_rms_norm_with_externalized_impl():
    norm = RMSNorm(10)
    nn.init.uniform_(norm.weight)
    model = ModelWithNorm(norm).eval()
    program = externalized(model, X, modules=[RMS_NORM])
    assert only_composite(program, "rms_norm").inputs == ["input", "scale"]
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"x": X})[output], model(X))


def test_each_instance_keeps_its_attributes():
    model = nn.Sequential(OwnNorm(10, eps=1e-5), nn.Linear(10, 10), OwnNorm(10, eps=0.25)).eval()
    program = externalized(model, X, modules=[RMS_NORM])
    found = composites(program, "rms_norm")
    assert sorted(graph.attrs["eps"] for graph in found) == [
        "2.500000e-01 : f32",
        "9.99999974E-6 : f32",
    ]
    assert sorted(graphs(program)["main"].callees) == sorted(graph.name for graph in found)
    (output,) = descriptor(program).output_names
    (fed,) = descriptor(program).input_names
    assert_close(run(program, {fed: X})[output], model(X))


def test_equal_instances_are_both_called():
    model = nn.Sequential(OwnNorm(10), nn.Linear(10, 10), OwnNorm(10)).eval()
    program = externalized(model, X, modules=[RMS_NORM])
    # The optimizer may merge equal private graphs; both calls must stay.
    assert len(graphs(program)["main"].callees) == 2


def test_subclass_matches():
    class Special(RMSNormImpl):
        pass

    norm = OwnNorm(10)
    norm.norm = Special(eps=1e-3)
    program = externalized(ModelWithNorm(norm), X, modules=[RMS_NORM])
    assert only_composite(program, "rms_norm").attrs["eps"].startswith("1.000000e-03")


def test_attributes_are_optional():
    spec = ExternalizeSpec(RMSNormImpl, composite_op_name="rms_norm")
    program = externalized(ModelWithNorm(OwnNorm(10)), X, modules=[spec])
    assert only_composite(program, "rms_norm").attrs == {"version": "1 : si64"}


def test_missing_attribute_raises_with_its_name():
    spec = ExternalizeSpec(RMSNormImpl, "rms_norm", composite_attrs=["epsilon"])
    with pytest.raises((ValueError, AttributeError), match="epsilon"):
        externalized(ModelWithNorm(OwnNorm(10)), X, modules=[spec])


# The module as the root of the model -------------------------------------------------------------


class RMSNormComposite(nn.Module):
    """The module of the externalization guide, where it is the model."""

    def __init__(self, axes=-1, eps=1e-5, version=1) -> None:
        super().__init__()
        self.axes = axes
        self.eps = eps
        self.version = version

    def forward(self, input: Tensor, scale: Tensor) -> Tensor:
        x_f32 = input.to(torch.float32)
        inv_rms = torch.rsqrt((x_f32 * x_f32).mean(self.axes, keepdim=True) + self.eps)
        return (input * inv_rms).to(input.dtype) * scale


def test_root_module_can_be_externalized():
    x, scale = torch.randn(10), torch.randn(10)
    spec = ExternalizeSpec(RMSNormComposite, "rms_norm", ["axes", "eps", "version"])
    program = externalized(RMSNormComposite(version=3), x, scale, modules=[spec])
    graph = only_composite(program, "rms_norm")
    assert graph.attrs["version"] == "3 : si64"
    assert graph.inputs == ["input", "scale"]
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"input": x, "scale": scale})[output], RMSNormComposite()(x, scale))


# Names of inputs ---------------------------------------------------------------------------------


class Affine(nn.Module):
    """Owns a parameter and a buffer, takes one argument."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((10,), 2.0))
        self.register_buffer("shift", torch.arange(10.0))

    def forward(self, value: Tensor, extra: Tensor | None = None) -> Tensor:
        result = value * self.gain + self.shift
        return result if extra is None else result + extra


class CallsAffine(nn.Module):
    def __init__(self, with_extra: bool) -> None:
        super().__init__()
        self.affine = Affine()
        self.with_extra = with_extra

    def forward(self, x):
        return self.affine(x, x * 3) if self.with_extra else self.affine(x)


AFFINE = ExternalizeSpec(Affine, composite_op_name="affine")


@pytest.mark.parametrize("with_extra", [False, True])
def test_inputs_are_parameters_buffers_and_arguments(with_extra):
    model = CallsAffine(with_extra)
    program = externalized(model, X, modules=[AFFINE])
    graph = only_composite(program, "affine")
    # An optional argument that is None is not an input.
    expected = {"gain", "shift", "value"} | ({"extra"} if with_extra else set())
    assert set(graph.inputs) == expected
    assert len(graph.inputs) == graph.argument_count == len(expected)
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"x": X})[output], model(X))


class TakesNumber(nn.Module):
    def forward(self, x: Tensor, factor: float) -> Tensor:
        return x * factor


class CallsWithNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = TakesNumber()

    def forward(self, x):
        return self.scale(x, 2.0)


def test_argument_that_is_not_a_tensor_raises_with_its_name():
    spec = ExternalizeSpec(TakesNumber, composite_op_name="scale")
    with pytest.raises((ValueError, TypeError), match="factor"):
        externalized(CallsWithNumber(), X, modules=[spec])


# Simple externalization --------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [OwnNorm, ExternalizeSpec(OwnNorm)], ids=["class", "spec"])
def test_class_alone_makes_a_graph_without_declaration(spec, model):
    program = externalized(model, X, modules=[spec])
    (called,) = graphs(program)["main"].callees
    graph = graphs(program)[called]
    assert graph.name.startswith("norm")
    assert graph.noinline
    assert not graph.private
    assert graph.composite is None
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"x": X})[output], model(X))


# The spec ----------------------------------------------------------------------------------------


def test_spec_is_a_dataclass_with_three_fields():
    assert [field.name for field in dataclasses.fields(ExternalizeSpec)] == [
        "target_class",
        "composite_op_name",
        "composite_attrs",
    ]
    spec = ExternalizeSpec(target_class=RMSNormImpl)
    assert (spec.composite_op_name, spec.composite_attrs) == (None, None)


def test_attributes_without_a_name_raise():
    with pytest.raises(ValueError, match="composite_op_name"):
        ExternalizeSpec(target_class=RMSNormImpl, composite_attrs=["eps"])


def test_class_that_matches_nothing_warns():
    model = nn.Linear(10, 5).eval()
    converter = TorchConverter()
    with pytest.warns(UserWarning, match="RMSNormImpl"):
        converter.add_pytorch_module(
            model, export_fn=lambda m: exported(m, X), externalize_modules=[RMS_NORM]
        ).to_coreai()


# Every built-in composite op ---------------------------------------------------------------------


class Inside(nn.Module):
    """The op as a named submodule with arguments passed by name."""

    def __init__(self, op: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.op = op
        self.names = names

    def forward(self, *values):
        result = self.op(**dict(zip(self.names, values, strict=True)))
        return tuple(r * 1 for r in result) if isinstance(result, tuple) else result * 1


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


BUILT_IN = {
    "rms_norm": (RMSNormImpl(), ["axes", "eps"], {"input": _normal(2, 6), "scale": _normal(6)}),
    "rope": (
        RoPE(),
        ["scale", "base", "dims", "interleaved"],
        {"input": _normal(1, 2, 3, 8), "position_ids": torch.tensor([[0, 1, 5]])},
    ),
    "scaled_dot_product_attention": (
        SDPA(is_causal=True),
        ["scale", "is_causal", "window_size"],
        {
            "query": _normal(1, 4, 3, 8),
            "key": _normal(1, 2, 5, 8),
            "value": _normal(1, 2, 5, 8),
        },
    ),
    "gather_mm": (
        GatherMM(),
        ["num_batch_axes"],
        {"lhs": _normal(2, 3), "rhs": _normal(4, 3, 5), "rhs_indices": torch.tensor([3, 1])},
    ),
    "gated_delta_update": (
        GatedDeltaUpdate(),
        ["use_qk_l2_norm"],
        {
            "query": _normal(1, 2, 3, 4),
            "key": _normal(1, 2, 3, 4),
            "value": _normal(1, 2, 3, 5),
            "g": -_normal(1, 2, 3).abs(),
            "beta": _normal(1, 2, 3).sigmoid(),
            "initial_state": _normal(1, 2, 4, 5),
        },
    ),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_op_converts_to_a_composite(name):
    op, attrs, feeds = BUILT_IN[name]
    model = Inside(op, list(feeds)).eval()
    values = tuple(feeds.values())
    spec = ExternalizeSpec(type(op), composite_op_name=name, composite_attrs=attrs)
    program = externalized(model, *values, modules=[spec])
    graph = only_composite(program, name)
    # An attribute that is None, such as the `dims` of RoPE, need not be recorded.
    recorded = {"version", *(name for name in attrs if getattr(op, name) is not None)}
    assert recorded <= set(graph.attrs) <= {"version", *attrs}
    assert set(graph.inputs) == set(feeds)
    names = descriptor(program)
    outputs = run(program, dict(zip(names.input_names, values, strict=True)))
    expected = model(*values)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for output, value in zip(names.output_names, expected, strict=True):
        assert_close(outputs[output], value)
