"""What the seed documents promise of externalized submodules and of the composite ops."""

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
    """The wrapper of the guides, which owns the scale."""

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


# Composite externalization ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return ModelWithNorm(OwnNorm(10)).eval()


@pytest.fixture(scope="module")
def program(model):
    return externalized(model, X, modules=[RMS_NORM])


def test_the_submodule_becomes_a_private_graph_called_from_main(program):
    graph = only_composite(program, "rms_norm")
    assert graph.private
    assert graph.noinline
    assert graphs(program)["main"].callees == [graph.name]


def test_the_graph_is_named_after_the_module_and_a_hash(program):
    name = only_composite(program, "rms_norm").name
    assert name.startswith("norm.norm")  # the path of the RMSNormImpl inside its wrapper
    assert len(name) > len("norm.norm")


def test_the_declaration_records_name_inputs_outputs_and_attributes(program):
    graph = only_composite(program, "rms_norm")
    assert graph.inputs == ["input", "scale"]
    assert graph.outputs == ["output"]
    assert graph.attrs == {
        "axes": "-1 : si64",
        "eps": "9.99999974E-6 : f32",
        "version": "1 : si64",
    }


def test_the_scale_goes_in_as_an_argument(program):
    graph = only_composite(program, "rms_norm")
    assert graph.argument_count == 2
    constants = [line for line in graph.body.splitlines() if "coreai.constant" in line]
    assert not any("tensor<10xf32>" in line for line in constants)


def test_the_numbers_are_those_of_torch(program, model):
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"x": X})[output], model(X))


def test_main_is_called_as_without_externalization(program):
    assert descriptor(program).input_names == ["x"]


def test_the_shipped_wrapper_works_with_the_inner_class():
    norm = RMSNorm(10)
    nn.init.uniform_(norm.weight)
    model = ModelWithNorm(norm).eval()
    program = externalized(model, X, modules=[RMS_NORM])
    assert only_composite(program, "rms_norm").inputs == ["input", "scale"]
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"x": X})[output], model(X))


def test_every_instance_keeps_its_own_attributes():
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


def test_a_subclass_is_matched():
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


def test_an_attribute_the_class_lacks_is_an_error_that_names_it():
    spec = ExternalizeSpec(RMSNormImpl, "rms_norm", composite_attrs=["epsilon"])
    with pytest.raises((ValueError, AttributeError), match="epsilon"):
        externalized(ModelWithNorm(OwnNorm(10)), X, modules=[spec])


# The module itself as the whole model -----------------------------------------------------------


class RMSNormComposite(nn.Module):
    """As in the externalization guide, where it is the model itself."""

    def __init__(self, axes=-1, eps=1e-5, version=1) -> None:
        super().__init__()
        self.axes = axes
        self.eps = eps
        self.version = version

    def forward(self, input: Tensor, scale: Tensor) -> Tensor:
        x_f32 = input.to(torch.float32)
        inv_rms = torch.rsqrt((x_f32 * x_f32).mean(self.axes, keepdim=True) + self.eps)
        return (input * inv_rms).to(input.dtype) * scale


def test_the_root_module_is_an_instance_like_any_other():
    x, scale = torch.randn(10), torch.randn(10)
    spec = ExternalizeSpec(RMSNormComposite, "rms_norm", ["axes", "eps", "version"])
    program = externalized(RMSNormComposite(version=3), x, scale, modules=[spec])
    graph = only_composite(program, "rms_norm")
    assert graph.attrs["version"] == "3 : si64"
    assert graph.inputs == ["input", "scale"]
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"input": x, "scale": scale})[output], RMSNormComposite()(x, scale))


# Names of inputs --------------------------------------------------------------------------------


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
def test_inputs_come_from_parameters_buffers_and_signature(with_extra):
    model = CallsAffine(with_extra)
    program = externalized(model, X, modules=[AFFINE])
    graph = only_composite(program, "affine")
    # An optional argument left as None does not appear.
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


def test_an_argument_that_is_no_tensor_is_an_error_that_names_it():
    spec = ExternalizeSpec(TakesNumber, composite_op_name="scale")
    with pytest.raises((ValueError, TypeError), match="factor"):
        externalized(CallsWithNumber(), X, modules=[spec])


# Simple externalization -------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [OwnNorm, ExternalizeSpec(OwnNorm)], ids=["class", "spec"])
def test_a_bare_class_makes_a_graph_without_a_declaration(spec, model):
    program = externalized(model, X, modules=[spec])
    (called,) = graphs(program)["main"].callees
    graph = graphs(program)[called]
    assert graph.name.startswith("norm")
    assert graph.noinline
    assert not graph.private
    assert graph.composite is None
    (output,) = descriptor(program).output_names
    assert_close(run(program, {"x": X})[output], model(X))


# The spec ---------------------------------------------------------------------------------------


def test_the_spec_is_a_dataclass_with_three_fields():
    assert [field.name for field in dataclasses.fields(ExternalizeSpec)] == [
        "target_class",
        "composite_op_name",
        "composite_attrs",
    ]
    spec = ExternalizeSpec(target_class=RMSNormImpl)
    assert (spec.composite_op_name, spec.composite_attrs) == (None, None)


def test_attributes_without_a_name_are_an_error():
    with pytest.raises(ValueError, match="composite_op_name"):
        ExternalizeSpec(target_class=RMSNormImpl, composite_attrs=["eps"])


def test_a_class_that_matches_nothing_is_a_warning():
    model = nn.Linear(10, 5).eval()
    converter = TorchConverter()
    with pytest.warns(UserWarning, match="RMSNormImpl"):
        converter.add_pytorch_module(
            model, export_fn=lambda m: exported(m, X), externalize_modules=[RMS_NORM]
        ).to_coreai()


# Every built-in composite op --------------------------------------------------------------------


class Inside(nn.Module):
    """The op as a named submodule, its arguments passed on by name."""

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
def test_the_three_steps_work_for_every_built_in_op(name):
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
