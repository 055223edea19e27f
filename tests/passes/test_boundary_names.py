"""Names of the inputs and outputs of a boundary."""

import dataclasses
from collections import namedtuple

import pytest
import torch
from boundary import NORM, Model, Norm, assert_agrees, composite_spec, composites, converted, graphs
from torch import nn

from coreai_torch import ExternalizeSpec, compress

X = torch.linspace(-2, 3, 18).reshape(3, 6)


def only(program, name="op"):
    (graph,) = composites(program, name)
    return graph


# Inputs ------------------------------------------------------------------------------------------


class Owner(nn.Module):
    """Uses its tensors in another order than it registers them, and not all of them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.rand(6))
        self.first = nn.Parameter(torch.rand(6))
        self.unread = nn.Parameter(torch.rand(6))
        self.inner = nn.Linear(6, 6)
        self.register_buffer("mask", torch.rand(6), persistent=False)
        self.plain = torch.rand(6)  # neither parameter nor buffer

    def forward(self, x, other):
        made = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        return self.inner(x * self.mask + other * self.table) * self.first + self.plain * made


def test_order_is_parameters_buffers_arguments():
    model = Model(lambda m, x: m.owner(other=x + 1, x=x), owner=Owner())
    program = converted(model, X, modules=[composite_spec(Owner)])
    graph = only(program)
    weights = ["first", "inner.weight", "inner.bias"]
    assert graph.inputs == [*weights, "table", "mask", "x", "other"]
    assert graph.argument_count == len(graph.inputs)
    assert_agrees(program, model, (X,))


def test_boundary_without_declaration_contains_its_weights():
    model = Model(lambda m, x: m.owner(x, x + 1), owner=Owner())
    program = converted(model, X, modules=[Owner])
    (name,) = graphs(program)["main"].callees
    assert graphs(program)[name].argument_count == 2
    assert_agrees(program, model, (X,))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.second(self.first(x).relu())


@pytest.fixture
def packed():
    model = Model(lambda m, x: m.layers(x) + x, layers=Layers()).eval()
    compress(model, "int4", block_size=32)
    return model


@pytest.mark.parametrize("strict", [False, True])
def test_compressed_weight_is_an_operand_under_its_name(packed, strict):
    x = torch.randn(2, 64)
    program = converted(packed, x, modules=[composite_spec(Layers)], strict=strict)
    weights = ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert only(program).inputs == [*weights, "x"]
    assert_agrees(program, packed, (x,))


@pytest.mark.parametrize(
    "spec", [Layers, composite_spec(Layers), composite_spec(nn.Linear)], ids=["plain", "op", "in"]
)
def test_compressed_weight_stays_packed_across_the_boundary(packed, spec, tmp_path):
    x = torch.randn(2, 64)
    program = converted(packed, x, modules=[spec])
    asset = program.save_asset(tmp_path / "m.aimodel")
    integers, scales, biases, ops = 2 * 64 * 64 // 2, 2 * 64 * 2 * 4, 2 * 64 * 4, 3_000
    assert (asset.path / "main.mlirb").stat().st_size < integers + scales + biases + ops
    assert_agrees(program, packed, (x,))


class Forward(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


def plain(a, b=None, c=None):
    return sum(t for t in (a, b, c) if t is not None)


def with_rest(a, *rest, scale=None, **named):
    tensors = [a, *rest, *named.values()]
    return sum(t for t in tensors if t is not None) * (1 if scale is None else scale)


def positional_only(a, b, /, c):
    return a - b * c


CALLS = {
    "positions": (plain, lambda f, x: f(x, x + 1, x + 2), ["a", "b", "c"]),
    "keywords_in_another_order": (plain, lambda f, x: f(c=x + 2, a=x), ["a", "c"]),
    "none_by_position": (plain, lambda f, x: f(x, None, x + 2), ["a", "c"]),
    "defaults": (plain, lambda f, x: f(x), ["a"]),
    "the_same_tensor_twice": (plain, lambda f, x: f(x, x, c=x + 1), ["a", "b", "c"]),
    "rest": (with_rest, lambda f, x: f(x, x + 1, None, x + 2), ["a", "rest_0", "rest_2"]),
    "named_rest": (with_rest, lambda f, x: f(x, scale=x, more=x + 1), ["a", "scale", "more"]),
    "positional_only": (positional_only, lambda f, x: f(x, x + 1, c=x), ["a", "b", "c"]),
}


@pytest.mark.parametrize("way", CALLS)
def test_arguments_have_names_and_order_of_the_signature(way):
    function, call, names = CALLS[way]
    model = Model(lambda m, x: call(m.op, x), op=Forward(function))
    program = converted(model, X, modules=[composite_spec(Forward)])
    assert only(program).inputs == names
    assert_agrees(program, model, (X,))


def test_unused_argument_is_an_input():
    model = Model(lambda m, x: m.op(x, x + 1, x + 2), op=Forward(lambda a, b, c: a * 2))
    program = converted(model, X, modules=[composite_spec(Forward)])
    assert only(program).inputs == ["a", "b", "c"]
    assert_agrees(program, model, (X,))


def test_call_without_arguments():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(6))

        def forward(self):
            return self.weight.cumsum(0)

    model = Model(lambda m, x: x + m.table(), table=Table())
    program = converted(model, X, modules=[composite_spec(Table)])
    assert only(program).inputs == ["weight"]
    assert_agrees(program, model, (X,))


def test_captured_tensor_has_the_name_of_its_node():
    def forward(m, x):
        m.op.seen.append(x.sin())
        return m.op(x)

    class Peeks(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, x):
            return x * self.seen.pop()

    model = Model(forward, op=Peeks())
    program = converted(model, X, modules=[composite_spec(Peeks)])
    assert only(program).inputs == ["sin", "x"]
    assert_agrees(program, model, (X,))


def test_colliding_names_are_made_unique():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(6))

        def forward(self, x, **named):
            return x * self.weight + named["weight"] - named["weight_1"]

    model = Model(lambda m, x: m.op(x, weight=x + 1, weight_1=x.sin()), op=Weighted())
    program = converted(model, X, modules=[composite_spec(Weighted)])
    assert only(program).inputs == ["weight", "x", "weight_2", "weight_1"]
    assert_agrees(program, model, (X,))


WRONG = {
    "number": (lambda f, x: f(x, 3), "'b'", "3 (int)"),
    "flag": (lambda f, x: f(x, c=True), "'c'", "True (bool)"),
    "text": (lambda f, x: f(x, "mean"), "'b'", "'mean' (str)"),
    "tuple_of_tensors": (lambda f, x: f(x, (x, x)), "'b'", "(tuple)"),
    "size": (lambda f, x: f(x, x.shape[0]), "'b'", "3 (int)"),
}


@pytest.mark.parametrize("spec", [composite_spec(Forward), Forward], ids=["composite", "plain"])
@pytest.mark.parametrize("what", WRONG)
def test_argument_that_is_not_a_tensor_raises_with_module_name_and_value(what, spec):
    call, argument, value = WRONG[what]
    model = Model(lambda m, x: call(m.op, x), op=Forward(plain))
    with pytest.raises(ValueError) as error:  # noqa: PT011  the message is checked below
        converted(model, X, modules=[spec])
    message = str(error.value)
    assert message.startswith(f"argument {argument} of externalized module 'op' (Forward) is ")
    assert value in message
    assert "composite_attrs" in message


def test_symbolic_size_as_argument_raises():
    model = Model(lambda m, x: m.op(x, x.shape[0]), op=Forward(lambda a, b: a * b))
    dynamic = {"args": ({0: torch.export.Dim("n", min=2, max=9)},)}
    with pytest.raises(ValueError, match=r"argument 'b' of externalized module 'op'.*SymInt"):
        converted(model, X, modules=[composite_spec(Forward)], dynamic_shapes=dynamic)


def test_unset_default_that_is_not_a_tensor_is_allowed():
    model = Model(lambda m, x: m.op(x), op=Forward(lambda a, factor=3.0: a * factor))
    program = converted(model, X, modules=[composite_spec(Forward)])
    assert only(program).inputs == ["a"]
    assert_agrees(program, model, (X,))


# Outputs -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor
    note: str = ""


Named = namedtuple("Named", ["left", "right"])

RETURNED = {
    "tensor": (lambda x: x * 2, lambda y: y, 1),
    "tuple": (lambda x: (x * 2, x.sum()), lambda y: y[0] + y[1], 2),
    "tuple_of_one": (lambda x: (x * 2,), lambda y: y[0], 1),
    "list_with_none_and_numbers": (lambda x: [x * 2, None, 5], lambda y: y[0] * y[2], 1),
    "nested": (lambda x: (x * 2, [x + 1, {"a": x - 1}]), lambda y: y[0] * y[1][1]["a"], 3),
    "dictionary": (lambda x: {"b": x * 2, "a": x + 1}, lambda y: y["a"] - y["b"], 2),
    "named_tuple": (lambda x: Named(x * 2, x + 1), lambda y: y.left - y.right, 2),
    "dataclass": (lambda x: Pair(x * 2, right=x + 1), lambda y: y.left - y.right, 2),
    "the_same_twice": (lambda x: [x.sin()] * 2, lambda y: y[0] + y[1], 2),
    "its_argument_too": (lambda x: (x, x + 1), lambda y: y[0] * y[1], 2),
    "a_view_of_its_argument": (lambda x: x[:, 1:4], lambda y: y * 2, 1),
    "a_constant": (lambda x: (torch.arange(6.0), x + 1), lambda y: y[0] * y[1], 2),
    "some_that_nobody_reads": (lambda x: (x + 1, x.sin(), x.cos()), lambda y: y[1], 3),
}


@pytest.mark.parametrize("what", RETURNED)
def test_all_returned_tensors_are_outputs(what):
    function, use, count = RETURNED[what]
    model = Model(lambda m, x: use(m.op(x)), op=Forward(function))
    program = converted(model, X, modules=[composite_spec(Forward)])
    names = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    assert only(program).outputs == names
    assert_agrees(program, model, (X,))


def test_module_that_returns_its_weight():
    class Gives(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(6))

        def forward(self, x):
            return x + 1, self.weight

    model = Model(lambda m, x: list(m.op(x)), op=Gives())
    program = converted(model, X, modules=[composite_spec(Gives)])
    assert (only(program).inputs, only(program).outputs) == (
        ["weight", "x"],
        ["output_0", "output_1"],
    )
    assert_agrees(program, model, (X,))


def test_tensors_in_a_custom_object_have_the_names_of_their_nodes():
    class Box:
        def __init__(self, value):
            self.value = value

    model = Model(lambda m, x: m.op(x).value + 1, op=Forward(lambda x: Box(x.sin())))
    program = converted(model, X, modules=[composite_spec(Forward)])
    assert only(program).outputs == ["sin"]
    assert_agrees(program, model, (X,))


# The spec ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Norm",), "target_class is 'Norm'"),
        ((int,), "int is not an nn.Module"),
        ((Norm, None, ["eps"]), r"composite_attrs=\['eps'\] without a composite_op_name"),
        ((Norm, ""), "composite_op_name is ''"),
        ((Norm, 7), "composite_op_name is 7"),
        ((Norm, "norm", "eps"), r"composite_attrs is the string 'eps'\n.*\['eps'\]"),
    ],
)
def test_invalid_spec_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExternalizeSpec(*arguments)


def test_instance_instead_of_class_raises():
    with pytest.raises(ValueError, match="target_class is Norm"):
        converted(nn.Sequential(Norm()), X, modules=[Norm()])


@pytest.mark.parametrize(
    "value", [2**63, 1j, torch.ones(2), len, {"a": len}], ids=lambda v: type(v).__name__
)
def test_unsupported_attribute_value_raises_with_module_and_name(value):
    norm = Norm()
    norm.special = value
    with pytest.raises(ValueError, match=r"'special' of module '0' is .*cannot hold"):
        converted(nn.Sequential(norm), X, modules=[composite_spec(Norm, "norm", "special")])


def test_version_defaults_to_one():
    norm = Norm()
    norm.version = 4
    program = converted(nn.Sequential(norm), X, modules=[NORM])
    assert only(program, "norm").attrs["version"] == "1 : si64"
    program = converted(nn.Sequential(norm), X, modules=[composite_spec(Norm, "norm", "version")])
    assert only(program, "norm").attrs == {"version": "4 : si64"}
