"""Compiler rewrites that change results: the emitted ops must avoid them."""

from __future__ import annotations

import pytest
import runtime
import torch
from staging import converted
from torch import nn


class Call(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


X = torch.tensor([1.25, -7.5, 100.0, 3e-5])
N = torch.tensor([7, -8, 1, 100], dtype=torch.int32)

TRAPS = {
    "a cast to integer and back": (lambda x: (x + 1000).long().float() - 1000, X),
    "truncation by a cast": (lambda x: x.int().float(), X),
    "rounding by a large sum": (lambda x: (x + 1e8) - 1e8, X),
    "rounding by a large difference": (lambda x: (x - 1e8) + 1e8, X),
    "two large factors": (lambda x: (x * 1e-30 * 1e30) * 1e30, X),
    "two small factors": (lambda x: (x * 1e-30) * 1e-30 * 1e30, X),
    "two large divisors": (lambda x: x / 1e30 / 1e30 * 1e30, X),
    "integer division undone": (lambda n: torch.div(n, 3, rounding_mode="trunc") * 3, N),
    "integer product divided": (lambda n: torch.div(n * 3, 2, rounding_mode="trunc"), N),
    "floor division undone": (lambda n: (n // 3) * 3, N),
    "floor by one": (lambda x: torch.div(x, 1, rounding_mode="floor"), X),
    "half precision and back": (lambda x: x.half().float(), X),
    "squared distances": (lambda x: (x[:, None] - x[None, :]) ** 2, X),
    "a mask of comparisons": (
        lambda n: ((n > 0) & (n < 50) & (n != 7)).float() * 2 + n,
        N,
    ),
    "double transposition": (lambda x: x.reshape(2, 2).t().reshape(2, 2).t() + 0, X),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_optimize_keeps_the_result(trap):
    fn, x = TRAPS[trap]
    program = converted(Call(fn), x)
    for _ in range(2):
        (got,) = runtime.run(program, {"args_0": x}).values()
        torch.testing.assert_close(got, fn(x), rtol=1e-6, atol=0)
        program.optimize()
