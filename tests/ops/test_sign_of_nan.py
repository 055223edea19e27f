"""No op of Core AI reads the sign bit of NaN: programs take NaN as positive, as documented."""

from __future__ import annotations

import torch
from module_runner import check, convert, run

_NANS = torch.tensor([0x7FC00000, -0x400000], dtype=torch.int32).view(torch.float32)


def test_nan_of_an_input_is_positive():
    program = convert(lambda x: (x.signbit(), torch.copysign(torch.ones(2), x)), (_NANS,))
    found = run(program, (_NANS,))
    assert [f.tolist() for f in found] == [[False, False], [1.0, 1.0]]


def test_nan_of_a_constant_has_its_sign():
    class Signs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("nans", _NANS.clone())

        def forward(self, x):
            return x + self.nans.signbit(), torch.copysign(
                x, torch.where(self.nans.signbit(), -1.0, 1.0)
            )

    check(Signs(), (torch.ones(2),))
