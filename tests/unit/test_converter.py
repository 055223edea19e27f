"""TorchConverter: staging, names, errors, entrypoints, registered lowerings, copies."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.reading import read
from coreai_torch.errors import (
    ExportError,
    LoweringError,
    NamingError,
    NotDecomposedError,
    UnsupportedArgumentError,
    UnsupportedOpError,
    WrongResultError,
)
from coreai_torch.ir import dialect as cai


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)


def exported(model, *args, **kwargs):
    return torch.export.export(model.eval(), args, **kwargs).run_decompositions(get_decomp_table())


@pytest.fixture
def program():
    return exported(Affine(), torch.randn(2, 4))


def test_methods_chain(program):
    converter = TorchConverter()
    assert converter.add_exported_program(program) is converter


def test_a_used_entrypoint_name_is_rejected(program):
    converter = TorchConverter().add_exported_program(program)
    with pytest.raises(ValueError, match=r"'main' is staged already; there are \['main'\]"):
        converter.add_exported_program(program)


def test_an_unknown_entrypoint_is_rejected(program):
    converter = TorchConverter().add_exported_program(program, entrypoint_name="encoder")
    for call in (converter.to_coreai, converter.clear):
        with pytest.raises(ValueError, match=r"called 'decoder'; .* are \['encoder'\]"):
            call(entrypoints=["decoder"])


@pytest.mark.parametrize("name", ["", None, 3])
def test_an_entrypoint_name_must_be_a_non_empty_string(program, name):
    with pytest.raises(NamingError, match=f"entrypoint_name is {name!r}"):
        TorchConverter().add_exported_program(program, entrypoint_name=name)


def test_a_used_name_is_rejected_before_the_export(program):
    def export_fn(module):
        raise AssertionError("export_fn was called")

    converter = TorchConverter().add_exported_program(program)
    with pytest.raises(NamingError, match="'main' is staged already"):
        converter.add_pytorch_module(Affine(), export_fn)


def test_an_empty_list_of_entrypoints_is_rejected(program):
    converter = TorchConverter().add_exported_program(program)
    with pytest.raises(NamingError, match=r"is empty; the staged entrypoints are \['main'\]"):
        converter.to_coreai(entrypoints=[])


def test_nothing_staged_is_a_runtime_error():
    with pytest.raises(RuntimeError, match="nothing is staged"):
        TorchConverter().to_coreai()


def test_clear_removes_programs_and_keeps_lowerings(program):
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::linear", allow_override=True)
    def linear(values_map, node, loc):
        raise RuntimeError("the registered lowering ran")

    converter.add_exported_program(program).clear()
    with pytest.raises(RuntimeError, match="nothing is staged"):
        converter.to_coreai()
    converter.add_exported_program(program)
    with pytest.raises(LoweringError, match="the registered lowering ran"):
        converter.to_coreai()


@pytest.mark.parametrize("empty", [[], ()])
def test_empty_names_are_default_names(program, empty):
    converter = TorchConverter()
    converter.add_exported_program(program, input_names=empty, output_names=empty)
    (function,) = read(converter.to_coreai()).functions.values()
    assert [port.name for port in function.inputs] == ["x"]
    assert [port.name for port in function.outputs] == ["linear"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"input_names": ["a", "b"]}, r"input_names has 2 names.*has 1 live inputs: \['x'\]"),
        ({"output_names": ["a", "b"]}, r"output_names has 2 names.*1 live outputs: \['linear'\]"),
        ({"state_names": ["s"]}, r"state_names has 1 names.*has 0 live states: \[\]"),
        ({"input_names": "x"}, "input_names is 'x'"),
        ({"output_names": [""]}, r"output_names is \[''\]"),
    ],
)
def test_wrong_names_are_rejected(program, names, message):
    with pytest.raises(NamingError, match=message):
        TorchConverter().add_exported_program(program, **names)


def test_duplicate_names_are_rejected():
    class Two(nn.Module):
        def forward(self, x, y):
            return x + y, x - y

    program = exported(Two(), torch.ones(2), torch.ones(2))
    with pytest.raises(NamingError, match="'a' occurs more than once"):
        TorchConverter().add_exported_program(program, input_names=["a", "a"])
    with pytest.raises(NamingError, match="'o' occurs more than once"):
        TorchConverter().add_exported_program(program, output_names=["o", "o"])


class Sum(nn.Module):
    def forward(self, x, y):
        return x * 2 + y


def test_a_warning_names_inputs_that_were_the_same_tensor():
    x = torch.ones(2)
    with pytest.warns(UserWarning, match=r"\['x', 'y'\] were one tensor[\s\S]*\['x'\] are never"):
        TorchConverter().add_exported_program(exported(Sum(), x, x))
    TorchConverter().add_exported_program(exported(Sum(), x, x.clone()))


def test_an_undecomposed_program_is_rejected():
    class Mutating(nn.Module):
        def forward(self, x):
            y = x.clone()
            y.add_(1)
            return torch.nn.functional.instance_norm(y[None, None]).hypot(x)

    with pytest.raises(NotDecomposedError, match=r"run_decompositions\(coreai_torch"):
        TorchConverter().add_exported_program(torch.export.export(Mutating(), (torch.ones(3),)))


def test_an_in_place_op_with_an_unused_result_is_not_dropped():
    class Cleared(nn.Module):
        def forward(self, x):
            y = x.neg()
            y[:1].zero_()
            return y

    with pytest.raises(NotDecomposedError, match=r"aten\.zero_\.default"):
        TorchConverter().add_exported_program(torch.export.export(Cleared(), (torch.ones(3),)))


@torch.library.custom_op("converter_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@mystery.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("converter_tests::pair", mutates_args=())
def pair(x: torch.Tensor, scale: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    return x * scale, x + scale


@pair.register_fake
def _(x, scale=2.0):
    return torch.empty_like(x), torch.empty_like(x)


class Inner(nn.Module):
    def forward(self, x):
        return mystery(mystery(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Inner()

    def forward(self, x):
        first, second = pair(self.block(x), 3.0)
        return first + second


def test_all_missing_ops_are_named_at_once_with_count_module_and_line():
    program = exported(Outer(), torch.ones(3))
    converter = TorchConverter().add_exported_program(program)  # a lowering may follow
    with pytest.raises(UnsupportedOpError) as raised:
        converter.to_coreai()
    message = str(raised.value)
    assert "no lowering for converter_tests.mystery.default, used 2 times" in message
    assert "no lowering for converter_tests.pair.default, used once" in message
    assert "in module 'block'" in message
    assert "test_converter.py" in message
    assert "register_torch_lowering" in message


def test_both_forms_of_lowerings_and_several_results():
    converter = TorchConverter()

    @converter.register_torch_lowering("converter_tests::mystery.default")
    def doubled(values_map, node, loc):
        x = values_map[node.args[0].name]
        return cai.add(x, x)

    @converter.register_torch_lowering("converter_tests::pair")
    def both(ctx, x: cai.Value, scale: float):
        by = cai.like(x, scale)
        return [cai.mul(x, by), cai.add(x, by)]

    import runtime

    x = torch.tensor([1.0, -2.0, 3.0])
    program = converter.add_exported_program(exported(Outer(), x)).to_coreai()
    (got,) = runtime.run(program, {"x": x}).values()
    torch.testing.assert_close(got, Outer()(x))


def test_values_map_contains_each_of_several_results():
    converter = TorchConverter()
    seen = {}

    @converter.register_torch_lowering("converter_tests::mystery")
    def identity(values_map, node, loc):
        return values_map[node.args[0].name]

    @converter.register_torch_lowering("converter_tests::pair")
    def both(values_map, node, loc):
        x = values_map[node.args[0].name]
        return [x, x]

    @converter.register_torch_lowering("aten::add.Tensor", allow_override=True)
    def add(values_map, node, loc):
        seen.update({name: values_map[name] for name in ("pair#0", "pair#1")})
        absent = ("pair#2", "x#0", "unknown", "unknown#0")
        assert not any(name in values_map or values_map.get(name) for name in absent)
        return values_map["pair#0"]

    converter.add_exported_program(exported(Outer(), torch.ones(3))).to_coreai()
    assert set(seen) == {"pair#0", "pair#1"}


@pytest.mark.parametrize(
    "name", ["scaled_add", "::op", "my_lib::", "a::b::c", "a::b.c.d", "a b::c", "a::b.", "", 5]
)
def test_an_unqualified_op_name_is_rejected(name):
    with pytest.raises(ValueError, match="is not a qualified op name"):
        TorchConverter().register_torch_lowering(name)


@pytest.mark.parametrize("name", ["aten::add", "aten::add.Tensors"])
def test_an_overload_that_torch_lacks_is_rejected(name):
    # No graph contains such a node, so the lowering would silently never run.
    with pytest.raises(ValueError, match=rf"no op '{name}'\n  try   one of .*'aten::add.Tensor'"):
        TorchConverter().register_torch_lowering(name, allow_override=True)


@pytest.mark.parametrize("namespace", ["aten", "higher_order", "coreai", "coreaix"])
def test_builtin_namespaces_need_allow_override(namespace):
    with pytest.raises(ValueError, match=f"namespace '{namespace}' is built in"):
        TorchConverter().register_torch_lowering(f"{namespace}::anything")


def test_a_second_lowering_needs_allow_override():
    converter = TorchConverter()
    converter.register_torch_lowering("my_lib::op")(lambda values_map, node, loc: None)
    with pytest.raises(ValueError, match="is already registered"):
        converter.register_torch_lowering("my_lib::op.default")
    converter.register_torch_lowering("my_lib::op", allow_override=True)


def test_lowerings_belong_to_one_converter():
    TorchConverter().register_torch_lowering("my_lib::mine")(lambda values_map, node, loc: None)
    TorchConverter().register_torch_lowering("my_lib::mine")


def test_a_ctx_lowering_must_match_the_schema():
    with pytest.raises(TypeError, match=r"takes \['wrong'\]"):

        @TorchConverter().register_torch_lowering("converter_tests::mystery")
        def lower(ctx, x: cai.Value, wrong: int):
            return x


def test_a_ctx_lowering_needs_an_existing_op():
    with pytest.raises(ValueError, match="torch has no op 'converter_tests::nothing'"):

        @TorchConverter().register_torch_lowering("converter_tests::nothing")
        def lower(ctx, x: cai.Value):
            return x


def test_an_error_names_a_lowering_that_returns_the_wrong_type():
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::linear", allow_override=True)
    def linear(values_map, node, loc):
        return values_map[node.args[0].name]

    converter.add_exported_program(exported(Affine(), torch.randn(2, 4)))
    promised = r"(?s)became tensor<2x4xf32>, but .* tensor<2x3xf32>.*fix the registered lowering"
    with pytest.raises(WrongResultError, match=promised):
        converter.to_coreai()


def test_add_exported_program_rejects_a_module():
    with pytest.raises(ValueError, match="takes an ExportedProgram, not a Affine"):
        TorchConverter().add_exported_program(Affine())


def test_add_pytorch_module_checks_its_arguments(program):
    with pytest.raises(ExportError, match=r"takes an nn\.Module, not a ExportedProgram"):
        TorchConverter().add_pytorch_module(program, lambda m: m)
    with pytest.raises(ExportError, match="export_fn returned a Affine"):
        TorchConverter().add_pytorch_module(Affine(), lambda m: m)


def test_get_decomp_table_returns_a_new_dictionary():
    get_decomp_table().clear()
    assert get_decomp_table()


def test_a_rejection_has_problem_location_hint_and_code():
    converter = TorchConverter()

    @converter.register_torch_lowering("converter_tests::mystery")
    def never(ctx, x: cai.Value):
        ctx.refuse("odd numbers of elements")

    class Small(nn.Module):
        def forward(self, x):
            return mystery(x)

    converter.add_exported_program(exported(Small(), torch.ones(3)))
    with pytest.raises(UnsupportedArgumentError) as raised:
        converter.to_coreai()
    what, where, hint, code = str(raised.value).splitlines()
    assert what == "converter_tests.mystery.default: odd numbers of elements"
    assert where.startswith("  at    %mystery = converter_tests.mystery.default")
    assert "test_converter.py" in where
    assert hint.startswith("  try   register a lowering with TorchConverter.register")
    assert code == "  code  CAT103"


@pytest.mark.parametrize("copy", ["empty", "in_mode"])
def test_a_copy_shares_nothing_mutable_with_its_original(program, copy):
    original = TorchConverter(recognize=True).add_exported_program(program, entrypoint_name="a")
    other = {"empty": original.empty, "in_mode": original.in_mode}[copy](TorchConverter.Mode.DEBUG)

    other.register_torch_lowering("converter_tests::mystery")(lambda values_map, node, loc: None)
    original.register_torch_lowering("converter_tests::pair")(lambda values_map, node, loc: None)
    original.add_exported_program(exported(Outer(), torch.ones(3)), entrypoint_name="outer")
    with pytest.raises(UnsupportedOpError) as raised:
        original.to_coreai()
    assert "converter_tests.mystery" in str(raised.value)
    assert "converter_tests.pair" not in str(raised.value)
    other.add_exported_program(exported(Outer(), torch.ones(3)), entrypoint_name="outer")
    with pytest.raises(UnsupportedOpError) as raised:
        other.to_coreai()
    assert "converter_tests.mystery" not in str(raised.value)
    assert "converter_tests.pair" in str(raised.value)

    original.clear(entrypoints=["outer"])
    other.add_exported_program(program, entrypoint_name="b")
    original.add_exported_program(program, entrypoint_name="b")
    other.clear()
    assert "@a" in str(original.to_coreai())
    assert "@b" in str(original.to_coreai(entrypoints=["b"]))
    with pytest.raises(RuntimeError, match="nothing is staged"):
        other.to_coreai()


def test_a_copy_starts_with_the_lowerings_and_settings_of_its_original(program):
    table = {torch.ops.aten.huber_loss.default: None}
    original = TorchConverter(decompositions=table).add_exported_program(program)
    original.register_torch_lowering("converter_tests::mystery")(lambda values_map, node, loc: None)
    for other in (original.empty(), original.in_mode(TorchConverter.Mode.DEBUG)):
        assert torch.ops.aten.huber_loss.default not in other.decomposition_table()
        with pytest.raises(ValueError, match="is already registered"):
            other.register_torch_lowering("converter_tests::mystery")
    assert "@main" in str(original.in_mode(TorchConverter.Mode.DEBUG).to_coreai())
