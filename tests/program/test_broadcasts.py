"""An operand that was broadcast is read as it was, where the op broadcasts it in the same way."""

import pytest
import runtime
import torch

import coreai_torch
from coreai_torch.asset.reading import read
from tests.forms.histograms import histogram

X, COLUMN, ROW = torch.randn(4, 3), torch.randn(4, 1), torch.randn(3)


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def converted(function, *args):
    return coreai_torch.convert(Call(function), args, verify=False)


READ_AS_GIVEN = {
    "an expanded column": (lambda x, c: x / c.expand(4, 3), X, COLUMN),
    "an expanded row": (lambda x, r: r.expand(4, 3) - x, X, ROW),
    "leading axes": (lambda x, r: x + r[None], X, ROW),
    "a condition": (lambda x, c: torch.where((c > 0).expand(4, 3), x, x * x), X, COLUMN),
}
EXPANDED = {
    "all operands": (lambda c, r: c.expand(4, 3) * c.expand(4, 3).exp(), COLUMN, ROW),
    "an axis that nothing else has": (lambda c, r: c.expand(4, 3) * 2, COLUMN, ROW),
    "an inner axis": (lambda x, r: x[:, :, None] * r, X, ROW),
}


@pytest.mark.parametrize("name", READ_AS_GIVEN)
def test_a_broadcast_that_the_op_repeats_is_left_out(name):
    function, *args = READ_AS_GIVEN[name]
    program = converted(function, *args)
    kinds = histogram(read(program)).ops
    assert not {"broadcast_to", "broadcast_in_dims", "reshape", "expand_dims"} & set(kinds)
    (got,) = runtime.run(program, feeds(program, args)).values()
    torch.testing.assert_close(got, function(*args))


@pytest.mark.parametrize("name", EXPANDED)
def test_a_broadcast_that_decides_the_sizes_stays(name):
    function, *args = EXPANDED[name]
    program = converted(function, *args)
    (got,) = runtime.run(program, feeds(program, args)).values()
    torch.testing.assert_close(got, function(*args))


def feeds(program, args):
    return dict(zip(("args_0", "args_1"), args, strict=True))
