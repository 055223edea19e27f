"""Compiler rewrites that change results: the emitted ops must avoid them."""

from __future__ import annotations

from collections import Counter

import pytest
import runtime
import torch
from staging import converted
from torch import nn

from coreai_torch.asset.program import Program, mlir_module_of
from coreai_torch.ir.reassociation import _is_sum_near


class Call(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


X = torch.tensor([1.25, -7.5, 100.0, 3e-5])
H = torch.tensor([-4e4, -0.0, 1e-3, 0.25], dtype=torch.float16)
N = torch.tensor([7, -8, 1, 100], dtype=torch.int32)

TRAPS = {
    "a cast to integer and back": (lambda x: (x + 1000).long().float() - 1000, X),
    "truncation by a cast": (lambda x: x.int().float(), X),
    "rounding by a large sum": (lambda x: (x + 1e8) - 1e8, X),
    "rounding by a large difference": (lambda x: (x - 1e8) + 1e8, X),
    "a difference from a large number": (lambda x: (1e8 - x) - 1e8, X),
    "a large number minus a difference": (lambda x: 1e8 - (1e8 - x), X),
    "a small addend after a large one": (lambda x: (x + 1e8) + 1, X - 1e8),
    "a chain of four sums": (lambda x: x + 1e8 + 1e8 + 1e8 - 3e8, X),
    "a sum of constants that overflows": (lambda x: (x + 40000) + 40000, H),
    "a product of constants that overflows": (lambda x: x * 60 * 60 * 60, H),
    "a product of divisors that overflows": (lambda x: x / 60 / 60 / 60, H),
    "a quotient with large numbers on the left": (lambda x: 1e30 / (1e30 / x), X * 1e-20),
    "a product under a large dividend": (lambda x: 1e-30 / (x * 1e30), X * 1e-30),
    "a negated factor between two large ones": (lambda x: -(x * 1e-30) * 1e-30 * 1e35, X),
    "a product divided": (lambda x: torch.floor(x * 7 / 23), torch.arange(0.0, 240, 23)),
    "a negated quotient": (lambda x: torch.floor(-(x / 3) * 3), torch.arange(1.0, 40.0)),
    "a quotient of a negated number": (lambda x: torch.ceil(-x / 49), torch.arange(49.0, 490, 49)),
    "a transposition undone between two sums": (
        lambda x: (x.reshape(2, 2) + 1e8).t().contiguous().t() - 1e8,
        X,
    ),
    "a reshape undone between two sums": (lambda x: (x + 1e8).reshape(2, 2).reshape(4) - 1e8, X),
    "a wider type between two sums": (lambda x: ((x + 40000).float().half()) + 40000, H),
    "complex sums": (lambda x: (torch.complex(x, x) + 1e8 - 1e8).real, X),
    "both uses of a sum": (lambda x: (x + 1e8 - 1e8) * (x + 1e8), X),
    "zeros with signs": (lambda x: 1 / ((x - 0.0) - (-0.0)), torch.tensor([-0.0, 0.0, 1.0])),
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
    "a constant compared with infinity": (
        lambda x: torch.hypot(torch.tensor([3.0, -2.0]), x),
        X[:2],
    ),
    "a constant base of complex powers": (lambda x: (10 ** (1j * x)).real, X),
    "a constant equal to the input": (lambda x: torch.logaddexp(torch.tensor(1.25), x), X),
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


@pytest.mark.parametrize("trap", TRAPS)
def test_the_number_survives_folding_by_another_process(trap, tmp_path):
    """A loaded asset lacks the hook that prevents folding, so whole chains are joined."""
    fn, x = TRAPS[trap]
    asset = converted(Call(fn), x).save_asset(tmp_path / "m.aimodel")
    program = Program._from_mlir_module(mlir_module_of(asset.program))
    program.optimize()
    (got,) = runtime.run(program, {"args_0": x}).values()
    torch.testing.assert_close(got, fn(x), rtol=1e-6, atol=0)


def _ops(program):
    body = program.mlir_module.body.operations[0].regions[0].blocks[0]
    return Counter(str(op.operation.name) for op in body.operations)


def _barriers(fn, *args):
    return _ops(converted(Call(fn), *args))["coreai.maximum"]


FREE = {
    "one constant each of a sum and a product": (lambda x: (x * 1e8 + 1e8) * 1e-8 - 1e8, X),
    "a sum with a second input": (lambda x: ((x + 1e8) + x) - 1e8, X),
    "an activation between two sums": (lambda x: (x + 1e8).tanh() - 1e8, X),
    "a reshape that stays": (lambda x: (x + 1e8).reshape(2, 2) - 1e8, X),
    "a narrower type between two sums": (lambda x: (x + 1e8).half().float() - 1e8, X),
    "a negated product": (lambda x: -(x * 3) * -1, X),
    "a product of a negated number": (lambda x: -x * 3, X),
    "a bias and the addend of hardswish": (lambda x: x + torch.tensor([0.5, -2, 4, 0]) + 3, X),
    "a bias and a mask": (lambda x: x + 0.5 + torch.tensor([0.0, -torch.inf, 0, -1e9]), X),
    "sums and products of integers": (lambda n: (n * 3 * 5 + (2**31 - 1)) - 7, N),
    "bfloat16": (lambda x: (x.bfloat16() + 1e8) - 1e8, X),
}


@pytest.mark.parametrize("name", FREE)
def test_no_barrier_where_no_number_changes(name):
    fn, x = FREE[name]
    assert _barriers(fn, x) == 0


def test_no_barrier_in_ordinary_blocks():
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardswish(), nn.GroupNorm(2, 8))
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
    assert _ops(converted(conv, torch.rand(1, 3, 8, 8)))["coreai.maximum"] == 0
    assert _ops(converted(layer, torch.rand(1, 4, 16)))["coreai.maximum"] == 0


def test_one_barrier_for_each_pair_of_constants():
    assert _barriers(lambda x: (x + 1e8) - 1e8, X) == 1
    assert _barriers(lambda x: x * 60 * 60 * 60, H) == 2
    assert _barriers(lambda n: torch.div(n * 3, 2, rounding_mode="trunc"), N) == 1


@pytest.mark.parametrize("count", [255, 256, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_folded_zeros_keep_their_signs(count, dtype):
    zeros = torch.tensor([0.0, -0.0], dtype=dtype).repeat(500)[:count]
    x = torch.ones(count, dtype=dtype)

    def fn(x):
        return torch.copysign(x, -zeros)

    program = converted(Call(fn), x)
    for _ in range(2):
        (got,) = runtime.run(program, {"args_0": x}).values()
        assert torch.equal(got, fn(x))
        program.optimize()


def test_constants_of_sizes_that_do_not_broadcast_stay_apart():
    # Dynamic sizes hide that a value between two sums changed its size: the compiler cannot join.
    assert _is_sum_near(torch.ones(32), torch.ones(8), torch.float32)
    assert _is_sum_near(torch.ones(2, 1), torch.ones(8), torch.float32)
    assert not _is_sum_near(torch.full((2, 1), 1e8), torch.ones(8), torch.float32)
