"""Data-dependent sizes that constants decide are static in the program."""

from __future__ import annotations

import pytest
import runtime
import torch
from staging import converted
from torch import nn

from coreai_torch.asset import reading

ONE, NONE = torch.tensor([True, False]), torch.tensor([False, False])


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


FUNCTIONS = {
    "combinations of one element": (lambda x: torch.combinations(x[:1], r=1)),
    "combinations": (lambda x: torch.combinations(x, r=1)),
    "joined columns": (lambda x: torch.cat([x[ONE][:, None], x[ONE][:, None] + 1], 1)),
    "reshaped": (lambda x: (x[ONE] + 1).reshape(-1, 1)),
    "repeated": (lambda x: (x[ONE] + 1).reshape(-1, 1).expand(-1, 3)),
    "masked_select": (lambda x: torch.masked_select(x, ONE).unsqueeze(1)),
    "nothing": (lambda x: torch.cat([x[NONE][:, None]], 1)),
    "sum of nothing": (lambda x: x[NONE].sum() + x),
    "nonzero": (lambda x: x[torch.nonzero(torch.tensor([1, 0]))].transpose(0, 1)),
    "repeat_interleave": (lambda x: torch.repeat_interleave(x, torch.tensor([1, 2]))[:, None]),
}


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_size_that_constants_decide(name, optimized):
    model, x = Call(FUNCTIONS[name]), torch.tensor([0.5, -1.5])
    program = converted(model, x)
    if optimized:
        program.optimize()
    for op in reading.read(program, largest=0).functions["main"].body.ops:
        if op.name == "coreai.cast" and reading.DYNAMIC not in op.operand_types[0].shape:
            assert reading.DYNAMIC not in op.types[0].shape
    (got,) = runtime.run(program, {"x": x}).values()
    torch.testing.assert_close(got, model(x))
