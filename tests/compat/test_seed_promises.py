"""Promises of the seed documents about staging, converting and the decomposition table."""

import ast
import inspect
import warnings

import pytest
import torch
from compat.documents import blocks
from compat.programs import (
    assert_close,
    composites,
    converted,
    exported,
    graphs,
)
from runtime import Descriptor, descriptor, run
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter, get_decomp_table


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


X = torch.tensor([[1.0, -2.0, 3.0]])


# Signatures --------------------------------------------------------------------------------------


def _documented() -> dict[str, ast.FunctionDef]:
    """Return the signatures of the reference page by name."""
    found = {}
    for block in blocks("torch_converter_reference", "python signature"):
        definition = ast.parse(block.text.rstrip() + ": ...").body[-1]
        assert isinstance(definition, ast.FunctionDef)
        found[definition.name] = definition
    return found


SIGNATURES = _documented()
USER_FUNCTION = "lowering_func"  # written by the user


def _parameters(arguments: ast.arguments) -> list[tuple[str, str, object]]:
    """Return (name, kind, default) of each parameter."""
    plain = arguments.args
    empty = [inspect.Parameter.empty] * (len(plain) - len(arguments.defaults))
    defaults = [*empty, *map(ast.literal_eval, arguments.defaults)]
    keyword = zip(arguments.kwonlyargs, map(ast.literal_eval, arguments.kw_defaults), strict=True)
    return [
        *((arg.arg, "plain", value) for arg, value in zip(plain, defaults, strict=True)),
        *((arg.arg, "keyword", value) for arg, value in keyword),
    ]


@pytest.mark.parametrize("name", sorted(set(SIGNATURES) - {USER_FUNCTION}))
def test_signature_equals_the_documented_one(name):
    owner = TorchConverter if hasattr(TorchConverter, name) else coreai_torch
    kinds = {
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "plain",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
    }
    actual = [
        (parameter.name, kinds[parameter.kind], parameter.default)
        for parameter in inspect.signature(getattr(owner, name)).parameters.values()
    ]
    # `model=` of add_pytorch_module is another name for `module`, which is then omitted.
    optional = {"module": inspect.Parameter.empty, "export_fn": inspect.Parameter.empty}
    documented = _parameters(SIGNATURES[name].args)
    known = {parameter for parameter, *_ in documented}
    actual = [
        (parameter, kind, optional.get(parameter, default) if default is None else default)
        for parameter, kind, default in actual
        if parameter in known or kind != "keyword"  # more options by keyword are allowed
    ]
    assert actual == documented


def test_there_are_eight_documented_signatures():
    assert len(SIGNATURES) == 8


# Staging -----------------------------------------------------------------------------------------


def test_new_converter_without_program_raises():
    with pytest.raises(RuntimeError, match="add_exported_program"):
        TorchConverter().to_coreai()


def test_both_add_methods_return_the_converter():
    converter = TorchConverter()
    assert converter.add_exported_program(exported(Scale(2), X), entrypoint_name="a") is converter
    staged = converter.add_pytorch_module(
        Scale(3), export_fn=lambda m: exported(m, X), entrypoint_name="b"
    )
    assert staged is converter


def test_entrypoint_is_main_by_default():
    program = converted(Scale(2), X)
    assert list(graphs(program)) == ["main"]
    assert_close(run(program, {"x": X}, entrypoint="main")["mul"], X * 2)


def test_pytorch_module_is_equivalent_to_its_exported_program():
    model = nn.Linear(3, 2).eval()
    by_module = TorchConverter().add_pytorch_module(model, export_fn=lambda m: exported(m, X))
    by_program = TorchConverter().add_exported_program(exported(model, X))
    assert str(by_module.to_coreai()) == str(by_program.to_coreai())


def test_export_fn_receives_the_module():
    seen = []

    def export_fn(module):
        seen.append(module)
        return exported(module, X)

    model = Scale(2)
    TorchConverter().add_pytorch_module(model, export_fn=export_fn).to_coreai()
    assert seen == [model]


def test_add_pytorch_module_takes_names():
    converter = TorchConverter().add_pytorch_module(
        Scale(2), lambda m: exported(m, X), input_names=["a"], output_names=["b"]
    )
    program = converter.to_coreai()
    assert descriptor(program) == Descriptor(["a"], ["b"], [])


ADD_METHODS = {
    "add_exported_program": lambda program: TorchConverter().add_exported_program(program),
    "add_pytorch_module": lambda program: TorchConverter().add_pytorch_module(
        Scale(2), export_fn=lambda module: program
    ),
}


@pytest.mark.parametrize("method", ADD_METHODS)
def test_program_that_was_not_decomposed_raises(method):
    # `run_decompositions` would have decomposed `aten.linear`.
    raw = torch.export.export(nn.Linear(3, 2).eval(), (X,))
    with pytest.raises(ValueError, match="run_decompositions"):
        ADD_METHODS[method](raw).to_coreai()


@pytest.mark.parametrize("returned", [None, nn.Linear(3, 2)])
def test_export_fn_that_returns_no_program_raises(returned):
    with pytest.raises(ValueError, match="export_fn"):
        TorchConverter().add_pytorch_module(Scale(2), lambda m: returned).to_coreai()


def test_duplicate_entry_point_name_raises():
    converter = TorchConverter().add_exported_program(exported(Scale(2), X), entrypoint_name="a")
    with pytest.raises(ValueError, match="a") as by_program:
        converter.add_exported_program(exported(Scale(3), X), entrypoint_name="a")
    assert "entrypoint_name" in str(by_program.value)
    with pytest.raises(ValueError, match="entrypoint_name"):
        converter.add_pytorch_module(Scale(3), lambda m: exported(m, X), entrypoint_name="a")
    # A rejected program is not staged.
    program = converter.to_coreai()
    assert list(graphs(program)) == ["a"]
    assert_close(run(program, {"x": X}, entrypoint="a")["mul"], X * 2)


# Converting --------------------------------------------------------------------------------------


@pytest.fixture
def two():
    return (
        TorchConverter()
        .add_exported_program(exported(Scale(2), X), entrypoint_name="encoder")
        .add_exported_program(exported(Scale(3), X), entrypoint_name="decoder")
    )


def test_staged_programs_become_graphs_of_one_module(two):
    program = two.to_coreai()
    program.optimize()
    assert list(graphs(program)) == ["encoder", "decoder"]
    assert_close(run(program, {"x": X}, entrypoint="encoder")["mul"], X * 2)
    assert_close(run(program, {"x": X}, entrypoint="decoder")["mul"], X * 3)


def test_entrypoints_select_programs(two):
    program = two.to_coreai(entrypoints=["decoder"])
    assert list(graphs(program)) == ["decoder"]
    assert_close(run(program, {"x": X}, entrypoint="decoder")["mul"], X * 3)


def test_programs_stay_staged_after_conversion(two):
    assert list(graphs(two.to_coreai(entrypoints=["encoder"]))) == ["encoder"]
    assert list(graphs(two.to_coreai())) == ["encoder", "decoder"]
    assert str(two.to_coreai()) == str(two.to_coreai())


@pytest.mark.parametrize("method", ["to_coreai", "clear"])
def test_unknown_entry_point_lists_the_known_ones(two, method):
    with pytest.raises(ValueError, match="middle") as error:
        getattr(two, method)(entrypoints=["middle"])
    assert "encoder" in str(error.value)
    assert "decoder" in str(error.value)
    assert list(graphs(two.to_coreai())) == ["encoder", "decoder"]


@pytest.mark.parametrize("method", ["to_coreai", "clear"])
def test_entrypoints_is_keyword_only(two, method):
    with pytest.raises(TypeError):
        getattr(two, method)(["encoder"])


# clear -------------------------------------------------------------------------------------------


def test_clear_removes_the_named_programs(two):
    assert two.clear(entrypoints=["encoder"]) is None
    assert list(graphs(two.to_coreai())) == ["decoder"]


def test_clear_removes_all_programs(two):
    assert two.clear() is None
    with pytest.raises(RuntimeError):
        two.to_coreai()


def test_cleared_name_can_be_used_again(two):
    two.clear(entrypoints=["encoder"])
    two.add_exported_program(exported(Scale(5), X), entrypoint_name="encoder")
    program = two.to_coreai(entrypoints=["encoder"])
    assert_close(run(program, {"x": X}, entrypoint="encoder")["mul"], X * 5)


# The decomposition table -------------------------------------------------------------------------


def test_each_call_returns_a_new_table():
    first = get_decomp_table()
    assert type(first) is dict
    first.clear()
    assert get_decomp_table()
    assert set(get_decomp_table()) == set(get_decomp_table())


def test_op_removed_from_the_table_is_lowered_without_decomposition():
    from coreai_torch._aten_to_core import _aten_to_core_resolver

    missing = set(dict(torch.export.default_decompositions().items())) - set(get_decomp_table())
    assert torch.ops.aten.pixel_shuffle.default in missing
    names = {str(op).removeprefix("aten.") for op in missing if op.namespace == "aten"}
    assert names <= set(_aten_to_core_resolver)


COMPOSITES = {
    # A module, its argument, and the composite the guide names for it.
    "instance_norm": (nn.InstanceNorm2d(3, affine=True), torch.randn(2, 3, 4, 4)),
    "layer_norm": (nn.LayerNorm(6), torch.randn(2, 6)),
    "pixel_shuffle": (nn.PixelShuffle(2), torch.randn(1, 8, 3, 3)),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_standard_torch_ops_stay_composites(name):
    torch.manual_seed(0)
    module, x = COMPOSITES[name]
    program = converted(module, x, output_names=["y"])
    (composite,) = composites(program, name)
    assert composite.attrs["version"].startswith("1 ")
    assert composite.outputs == ["output"]
    assert composite.name in graphs(program)["main"].callees
    (fed,) = descriptor(program).input_names
    assert_close(run(program, {fed: x})["y"], module(x))


def test_default_table_of_torch_decomposes_the_composites():
    # The guide: preserved "as long as get_decomp_table() keeps them from being decomposed".
    x = torch.randn(1, 8, 3, 3)
    raw = torch.export.export(nn.PixelShuffle(2), (x,))
    program = TorchConverter().add_exported_program(raw.run_decompositions(), output_names=["y"])
    program = program.to_coreai()
    assert not composites(program, "pixel_shuffle")
    (fed,) = descriptor(program).input_names
    assert_close(run(program, {fed: x})["y"], nn.PixelShuffle(2)(x))


# The result --------------------------------------------------------------------------------------


def test_conversion_and_optimize_are_silent(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # run_decompositions copies an object, which raises a DeprecationWarning in torch.
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
        converted(nn.Linear(3, 2), X)
    assert capfd.readouterr() == ("", "")


def test_program_prints_as_a_module():
    text = str(converted(nn.Linear(3, 2), X))
    assert text.startswith("module")
    assert "coreai.graph @main" in text
