"""Warn about a program whose guards allow fewer sizes than its ranges say."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.export import Dim

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture import guards
from coreai_torch.errors import GuardWarning

AUTO = Dim.AUTO


class MiddleColumn(nn.Module):
    def forward(self, y):
        y = y.clone()
        y[:, y.shape[0] // 2] = 3  # torch makes the index static
        return y


class Nested(nn.Module):
    def forward(self, named, *, more):
        return named["rows"].reshape(-1, 4) + more[0].sum()


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, 2)

    def forward(self, x):
        return nn.functional.max_pool2d(self.convolution(x), 2)[:, 1:] + 1


def _warnings(model, args, kwargs, sizes):
    exported = torch.export.export(model.eval(), args, kwargs, dynamic_shapes=sizes)
    exported = exported.run_decompositions(get_decomp_table())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TorchConverter().add_exported_program(exported)
    return [str(w.message) for w in caught if issubclass(w.category, GuardWarning)]


@pytest.mark.parametrize(
    ("model", "args", "kwargs", "sizes", "guard"),
    [
        (MiddleColumn(), (torch.ones(6, 7),), {}, ({0: AUTO, 1: AUTO},), "y.size()[0] // 2) == 3"),
        (
            Nested(),
            ({"rows": torch.ones(8)},),
            {"more": [torch.ones(5)]},
            {"named": {"rows": {0: AUTO}}, "more": [{0: AUTO}]},
            "named['rows'].size()[0] % 4) == 0",
        ),
    ],
    ids=["an index", "nested inputs"],
)
def test_sizes_that_guards_restrict_are_reported(model, args, kwargs, sizes, guard):
    (message,) = _warnings(model, args, kwargs, sizes)
    assert guard in message
    assert "export with a named torch.export.Dim" in message


@pytest.mark.parametrize(
    "sizes",
    [{0: AUTO, 2: AUTO, 3: AUTO}, {0: Dim("n"), 2: Dim("rows", min=9), 3: Dim.AUTO}],
    ids=["left to torch", "named"],
)
def test_unrestricted_dynamic_sizes_give_no_warning(sizes):
    assert not _warnings(Plain(), (torch.ones(2, 3, 33, 35),), {}, (sizes,))


def test_long_guards_are_shortened():
    assert guards._readable("L['x'].size()[0] == 3") == "x.size()[0] == 3"
    assert len(guards._readable("L['x'].size()[0] + " * 100)) <= 60
