"""A converter's own decompositions change the table that `convert` uses, and no other."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn
from torch.nn import functional

import coreai_torch
from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.errors import (
    ArgumentTypeError,
    ExportError,
    NotDecomposedError,
    UnsupportedOpError,
)

X = torch.linspace(-2, 2, 12).reshape(4, 3)
GELU = torch.ops.aten.gelu.default
HUBER = torch.ops.aten.huber_loss.default
TAKE = torch.ops.aten.take.default  # the converter's own rewrite


@torch.library.custom_op("decomposition_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


DOUBLED = torch.ops.decomposition_tests.doubled.default


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def halved_gelu(x, approximate="none"):
    return x * 0.5


def converted(function, decompositions):
    converter = TorchConverter(decompositions=decompositions)
    program = coreai_torch.convert(Calls(function), (X,), converter=converter, verify=False)
    (result,) = runtime.run(program, {"x": X}).values()
    return result


def test_a_function_decomposes_an_op_that_is_lowered_otherwise():
    result = converted(functional.gelu, {GELU: halved_gelu})
    torch.testing.assert_close(result, X * 0.5)


def test_a_function_decomposes_a_custom_op():
    result = converted(doubled, {DOUBLED: lambda x: x + x})
    torch.testing.assert_close(result, X * 2)


def test_an_exported_program_is_decomposed_with_the_converters_table():
    program = torch.export.export(Calls(functional.gelu), (X,))
    decomposed = program.run_decompositions(get_decomp_table())
    converter = TorchConverter(decompositions={GELU: halved_gelu})
    for source in (program, decomposed):
        with pytest.raises(NotDecomposedError, match=r"\(converter.decomposition_table\(\)\)"):
            converter.add_exported_program(source)
        result = coreai_torch.convert(source, converter=converter, verify=False)
        (got,) = runtime.run(result, {"x": X}).values()
        torch.testing.assert_close(got, X * 0.5)


def test_none_keeps_an_op():
    huber = Calls(lambda x: functional.huber_loss(x, x * 2))
    converter = TorchConverter(decompositions={HUBER: None})
    with pytest.raises(UnsupportedOpError, match=r"no lowering for aten.huber_loss.default"):
        coreai_torch.convert(huber, (X,), converter=converter, verify=False)
    assert HUBER in get_decomp_table()
    coreai_torch.convert(huber, (X,), verify=False)


def test_the_table_of_a_converter():
    converter = TorchConverter(decompositions={GELU: halved_gelu, HUBER: None})
    converter.register_torch_lowering("aten::take", allow_override=True)(lambda *given: None)
    table, default = converter.decomposition_table(), get_decomp_table()
    assert table.pop(GELU) is halved_gelu
    assert set(default) - set(table) == {HUBER, TAKE}
    assert set(table) <= set(default)
    assert TorchConverter().decomposition_table().keys() == default.keys()


def test_the_table_of_a_converter_is_a_fresh_dictionary():
    converter = TorchConverter()
    converter.decomposition_table().clear()
    assert converter.decomposition_table()


def test_the_table_serves_a_program_that_the_user_exports():
    converter = TorchConverter(decompositions={GELU: halved_gelu})

    def export(module):
        program = torch.export.export(module, (X,))
        return program.run_decompositions(converter.decomposition_table())

    program = converter.add_pytorch_module(Calls(functional.gelu), export).to_coreai()
    (result,) = runtime.run(program, {"x": X}).values()
    torch.testing.assert_close(result, X * 0.5)


def test_later_changes_of_the_given_dictionary_have_no_effect():
    given = {HUBER: None}
    converter = TorchConverter(decompositions=given)
    given[GELU] = halved_gelu
    assert GELU not in converter.decomposition_table()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([GELU], "decompositions is "),
        ({"aten::gelu": None}, r"the key 'aten::gelu', which is not an op overload"),
        ({torch.ops.aten.gelu: None}, "which is not an op overload\n  try   use an overload"),
        ({GELU: 3}, r"contains 3 for aten.gelu.default"),
    ],
)
def test_wrong_decompositions_are_rejected(given, message):
    with pytest.raises(ArgumentTypeError, match=message):
        TorchConverter(decompositions=given)


def test_a_decomposition_that_fixes_a_dynamic_size_is_rejected():
    def doubled_with_number(x):
        return x + torch.ones(int(x.shape[0]), 1) * x

    converter = TorchConverter(decompositions={DOUBLED: doubled_with_number})
    rows = ({0: torch.export.Dim.DYNAMIC},)
    with pytest.raises(ExportError, match=r"dynamic: x\.shape\[0\] = 4\n  try   export these"):
        coreai_torch.convert(Calls(doubled), (X,), dynamic_shapes=rows, converter=converter)


def test_softshrink_is_decomposed_by_this_package():
    class Shrink(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.softshrink(x)

    program = torch.export.export(Shrink(), (torch.ones(3),))
    graph = program.run_decompositions(get_decomp_table()).graph
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert called == [torch.ops.aten.clamp.default, torch.ops.aten.sub.Tensor]
