"""Wrong arguments raise an error with a code and a hint, not an error from inside."""

from __future__ import annotations

import asyncio
import functools

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, convert, get_decomp_table, to_torch, verify
from coreai_torch.debugging.debug_info import strip_debug_info
from coreai_torch.debugging.graph_diff import compute_exported_program_diff
from coreai_torch.debugging.inspector import CoreAIInspector
from coreai_torch.debugging.torch_utils import save_intermediates
from coreai_torch.debugging.validator import (
    create_validator_for_coreai_program,
    create_validator_for_exported_program,
)
from coreai_torch.errors import CodedError, ExportError, NamingError, WrongResultError

X = torch.ones(2, 4)


@functools.cache
def exported():
    return torch.export.export(nn.ReLU(), (X,)).run_decompositions(get_decomp_table())


def staged(**names):
    return TorchConverter().add_exported_program(exported(), **names)


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (
            lambda: convert(nn.ReLU(), (X,), converter="debug"),
            "CAT113",
            "try   pass TorchConverter()",
        ),
        (lambda: convert(nn.ReLU(), (X,), output=3), "CAT113", "the path of an .aimodel"),
        (lambda: convert(nn.ReLU(), (X,), output=""), "CAT101", "ends in .aimodel"),
        (lambda: convert(nn.ReLU(), (X,), externalize_modules=3), "CAT110", "a list of"),
        (lambda: convert(nn.ReLU(), (X,), externalize_modules="ReLU"), "CAT110", "is 'ReLU'"),
        (lambda: verify(nn.ReLU(), 3, (X,)), "CAT113", "expected a Core AI program, not a int"),
        (lambda: verify(nn.ReLU(), None, (X,), engine="gpu"), "CAT302", "'auto', 'runtime'"),
        (lambda: verify(nn.ReLU(), None, (X,), trials=3), "CAT113", "trials is 3"),
        (lambda: verify(nn.ReLU(), None, (X,), converter=3), "CAT113", "converter is 3"),
        (lambda: to_torch(None), "CAT113", "a NoneType is not a Core AI program"),
        (lambda: TorchConverter("fast"), "CAT101", "one of ['release', 'debug']"),
        (lambda: TorchConverter(recognize=None), "CAT113", "try   True, or some of"),
        (lambda: TorchConverter().to_coreai(), "CAT114", "nothing is staged"),
        (lambda: staged().to_coreai(entrypoints=3), "CAT113", "some of ['main']"),
        (lambda: TorchConverter().add_pytorch_module(nn.ReLU(), None), "CAT113", "export_fn is"),
    ],
)
def test_wrong_argument_raises_an_error_with_a_code(call, code, message):
    with pytest.raises(CodedError) as error:
        call()
    assert error.value.code == code
    assert message in str(error.value)


@pytest.mark.parametrize("given", [3, {"x": "y"}, {"a"}, (c for c in "a"), "a", [b"a"], [""]])
@pytest.mark.parametrize("what", ["input_names", "output_names", "state_names"])
def test_names_must_be_a_list_of_strings(what, given):
    with pytest.raises(NamingError, match=f"{what} is "):
        staged(**{what: given})


@pytest.mark.parametrize("call", [convert, verify])
def test_dynamic_shapes_of_an_exported_program_are_rejected(call):
    with pytest.raises(ExportError, match="an exported program has the sizes"):
        call(exported(), dynamic_shapes=({0: torch.export.Dim("n")},))


async def looked_for(predicate=torch.isfinite, inputs=None, **options):
    validator = await create_validator_for_coreai_program(staged().to_coreai(), engine="torch")
    return await validator.check(
        predicate, inputs={"input": X} if inputs is None else inputs, **options
    )


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (
            lambda: create_validator_for_exported_program(nn.ReLU()),
            "CAT113",
            "an ExportedProgram is needed",
        ),
        (
            lambda: compute_exported_program_diff(None, exported()),
            "CAT113",
            "an ExportedProgram is needed",
        ),
        (
            lambda: save_intermediates("a.pt2", [X], "values"),
            "CAT113",
            "an ExportedProgram is needed",
        ),
        (lambda: strip_debug_info("net.aimodel"), "CAT113", "takes an AIProgram, not a str"),
        (lambda: asyncio.run(looked_for(3)), "CAT113", "predicate is 3"),
        (lambda: asyncio.run(looked_for(strategy="top")), "CAT113", "LevelOrderStrategy.auto"),
        (lambda: asyncio.run(looked_for(inputs=3)), "CAT113", "in the order of ['input']"),
        (lambda: asyncio.run(looked_for(inputs={"y": X})), "CAT113", "unknown ['y']"),
        (lambda: CoreAIInspector(model=staged().to_coreai(), function_name="f"), "CAT115", "'f'"),
        (lambda: to_torch(staged().to_coreai()).function("f"), "CAT115", "has ['main']"),
        (lambda: to_torch(staged().to_coreai())(None), "CAT113", "an input is a NoneType"),
        (lambda: to_torch(staged().to_coreai())(X.half()), "CAT113", "torch.float16 was given"),
        (lambda: to_torch(staged().to_coreai())(X[0]), "CAT101", "sizes [4] were given"),
    ],
)
def test_debugging_tools_reject_wrong_arguments(call, code, message):
    with pytest.raises(CodedError) as error:
        call()
    assert error.value.code == code
    assert message in str(error.value)


def test_error_names_the_lowering_that_returns_none():
    converter = TorchConverter()
    register = converter.register_torch_lowering("aten::relu", allow_override=True)
    register(lambda ctx, x: None)
    with pytest.raises(WrongResultError, match=r"relu.default became None(?s:.*)fix the reg"):
        converter.add_exported_program(exported()).to_coreai()
    with pytest.raises(CodedError, match="a lowering is a function, not 3"):
        register(3)
    with pytest.raises(CodedError, match=r"takes \['more'\], which are not in aten::relu"):
        register(lambda ctx, x, more: x)
    with pytest.raises(CodedError, match="takes TorchMetalKernel objects, not 3"):
        converter.register_custom_kernels(3)


def test_inputs_that_the_model_rejects_raise_a_coded_error():
    with pytest.raises(CodedError, match="fails on the given inputs: IndexError") as error:
        verify(nn.Embedding(4, 2), None, (torch.tensor([9]),), engine="torch")
    assert error.value.code == "CAT302"


def test_program_that_torch_cannot_decompose_raises_export_error():
    quoted = nn.ModuleDict({'a"b': nn.LayerNorm(4)})  # torch copies the quote into generated code

    class Keyed(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = quoted

        def forward(self, x):
            return self.parts['a"b'](x)

    with pytest.raises(ExportError, match=r"could not (export|decompose)"):
        convert(Keyed(), (X,), verify=False)


class Silent(nn.Module):
    def forward(self, x):
        return None


def test_verify_of_a_model_without_outputs_raises():
    with pytest.raises(CodedError, match="nothing could be compared: no call ran, or no output"):
        convert(Silent(), (X,))
