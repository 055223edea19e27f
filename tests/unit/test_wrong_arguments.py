"""Arguments of the wrong kind: told with a code and a way out, never from somewhere inside."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, convert, get_decomp_table, to_torch, verify
from coreai_torch.errors import CodedError, ExportError, NamingError

X = torch.ones(2, 4)
EXPORTED = torch.export.export(nn.ReLU(), (X,)).run_decompositions(get_decomp_table())


def staged(**names):
    return TorchConverter().add_exported_program(EXPORTED, **names)


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        (lambda: convert(nn.ReLU(), (X,), converter="debug"), "CAT113", "try   TorchConverter()"),
        (lambda: convert(nn.ReLU(), (X,), output=3), "CAT113", "the path of an .aimodel"),
        (lambda: convert(nn.ReLU(), (X,), output=""), "CAT101", "ends in .aimodel"),
        (lambda: convert(nn.ReLU(), (X,), externalize_modules=3), "CAT110", "a list of"),
        (lambda: convert(nn.ReLU(), (X,), externalize_modules="ReLU"), "CAT110", "is 'ReLU'"),
        (lambda: verify(nn.ReLU(), 3, (X,)), "CAT113", "a int is no Core AI program"),
        (lambda: verify(nn.ReLU(), None, (X,), engine="gpu"), "CAT302", "'auto', 'runtime'"),
        (lambda: verify(nn.ReLU(), None, (X,), trials=3), "CAT113", "trials is 3"),
        (lambda: verify(nn.ReLU(), None, (X,), converter=3), "CAT113", "converter is 3"),
        (lambda: to_torch(None), "CAT113", "a NoneType is no Core AI program"),
        (lambda: TorchConverter("fast"), "CAT101", "one of ['release', 'debug']"),
        (lambda: TorchConverter(recognize=None), "CAT113", "try   True, or some of"),
        (lambda: TorchConverter().to_coreai(), "CAT114", "nothing is staged"),
        (lambda: staged().to_coreai(entrypoints=3), "CAT113", "some of ['main']"),
        (lambda: TorchConverter().add_pytorch_module(nn.ReLU(), None), "CAT113", "export_fn is"),
    ],
)
def test_a_wrong_argument_is_told_with_a_code(call, code, told):
    with pytest.raises(CodedError) as error:
        call()
    assert error.value.code == code
    assert told in str(error.value)


@pytest.mark.parametrize("given", [3, {"x": "y"}, {"a"}, (c for c in "a"), "a", [b"a"], [""]])
@pytest.mark.parametrize("what", ["input_names", "output_names", "state_names"])
def test_names_are_a_list_of_names(what, given):
    with pytest.raises(NamingError, match=f"{what} is "):
        staged(**{what: given})


@pytest.mark.parametrize("call", [convert, verify])
def test_sizes_cannot_be_opened_after_the_export(call):
    with pytest.raises(ExportError, match="an exported program has the sizes"):
        call(EXPORTED, dynamic_shapes=({0: torch.export.Dim("n")},))


class Silent(nn.Module):
    def forward(self, x):
        return None


def test_a_model_that_returns_nothing_cannot_be_compared():
    with pytest.raises(CodedError, match="nothing could be compared: no call, or no output"):
        convert(Silent(), (X,))
