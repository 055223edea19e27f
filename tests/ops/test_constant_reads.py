"""Export evaluates reads of constant tensors (`item`, `bool`, ...) at export time."""

from __future__ import annotations

import pytest
import torch
from module_runner import Call, run
from torch.nn import functional

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture.exporting import decompose, export
from coreai_torch.errors import ExportError

X = torch.arange(12.0).reshape(3, 4)


def _masked(x):
    mask = torch.ones(3, 4)
    row = mask[1]
    row[2:] = 0  # through a view
    if mask.sum().item() == 10 and not (mask > 1).any():
        return x * mask
    return x


def _parts(x):
    sizes = torch.tensor([[1, 2], [1, 1]]).prod(-1).tolist()
    return torch.cat([part * n for part, n in zip(x.split(sizes), sizes, strict=True) if n > 1])


def _places(x):
    found = torch.tensor([0, 3, 0, 5]).nonzero()
    return torch.cat([x[:, n] for n in found[found[:, 0] > 1]], 1) if len(found) == 2 else x


def _padded(x):
    width = torch.zeros_like(x).sum().long() + 2
    return functional.pad(x, (width, width + 1)) if width > 1 else x


def _one_row(x):
    mask = torch.ones(1, 1, 512, 512)  # as Longformer, whose mask has all pairs of tokens
    return x if (mask[:, 0, 0] > 1).any().item() else x * 2


FUNCTIONS = {
    "mask": _masked,
    "parts": _parts,
    "places": _places,
    "padding": _padded,
    "one row of a large mask": _one_row,
}


class Reader(torch.nn.Module):
    """Read a buffer, and optionally write it."""

    def __init__(self, writes):
        super().__init__()
        self.register_buffer("stride", torch.tensor(2))
        self.writes = writes

    def forward(self, x):
        out = x[:, ::2] if self.stride > 1 else x
        if self.writes:
            self.stride.add_(1)
        return out


def _converted(module, args):
    program = decompose(export(module, args, None, None), get_decomp_table())
    return run(TorchConverter().add_exported_program(program).to_coreai(), args)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_read_of_a_constant_equals_torch(name):
    function = FUNCTIONS[name]
    with pytest.raises(Exception, match="data-dependent"):
        torch.export.export(Call(function), (X,))
    torch.testing.assert_close(_converted(Call(function), (X,)), [function(X)])


def test_constant_buffer_is_read():
    torch.testing.assert_close(_converted(Reader(writes=False), (X,)), [X[:, ::2]])


def test_buffer_that_the_model_writes_is_not_read():
    model = Reader(writes=True)
    with pytest.raises(ExportError):
        export(model, (X,), None, None)
    assert model.stride == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x if torch.rand(3).sum() > 0 else -x,
        lambda x: x if torch.empty(3).fill_(x[0, 1]).sum() > 0 else -x,
        lambda x: x if torch.ones(4).copy_(x[0])[1] > 0 else -x,
    ],
    ids=["an input", "random", "filled from an input", "an input, copied"],
)
def test_read_of_another_tensor_is_rejected(function):
    with pytest.raises(ExportError, match="data-dependent"):
        export(Call(function), (X,), None, None)
