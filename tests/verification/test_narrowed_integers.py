"""Integers of torch beyond 32 bits differ from the program's, and the verdict says why."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import verify
from coreai_torch.numerics.compare import compare

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
X = torch.tensor([100_000, 3, -70_000])


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def verdict_of(function, x=X):
    model = Call(function)
    return verify(model, coreai_torch.convert(model, (x,), verify=False), (x,))


@pytest.mark.parametrize("function", [lambda x: x * x, lambda x: x.prod(), lambda x: x << 20])
def test_result_beyond_32_bits_is_narrowing(function):
    verdict = verdict_of(function)
    assert not verdict
    assert verdict.trials[0].outputs[0].narrowed
    assert "exceed" in str(verdict)
    assert "(narrowing)" in str(verdict)
    assert "the op itself" not in str(verdict)


@pytest.mark.parametrize("function", [lambda x: x * x // 1000, lambda x: (x * x).float()])
def test_operand_beyond_32_bits_is_narrowing(function):
    verdict = verdict_of(function)
    assert not verdict
    assert "the operand %mul exceeds 32 bits in torch" in str(verdict)
    assert "the op itself" not in str(verdict)


def test_low_bits_of_a_large_product_agree():
    assert verdict_of(lambda x: (x * 75_777) & 0xFFFF)


def test_generated_inputs_whose_results_exceed_32_bits_are_skipped():
    verdict = verdict_of(lambda x: x * x.flip(0), torch.tensor([100_000, 3, 1]))
    assert verdict
    assert "integers of torch's results exceed 32 bits" in " ".join(verdict.left_out)


EXTREMES = torch.iinfo(torch.int64), torch.iinfo(torch.int32)


@pytest.mark.parametrize(
    ("want", "got", "ok"),
    [
        (EXTREMES[0].min, EXTREMES[1].min, True),
        (EXTREMES[0].max, EXTREMES[1].max, True),
        (EXTREMES[0].min, 0, False),  # the low bits
        (EXTREMES[0].max, -1, False),
        (EXTREMES[0].min + 1, EXTREMES[1].min, False),
        (2**31, -(2**31), False),
        (2**31 - 1, 2**31 - 1, True),
    ],
)
def test_extremes_of_int64_become_those_of_int32(want, got, ok):
    error = compare("y", torch.tensor([5, got]).int(), torch.tensor([5, want]), {})
    assert error.ok is ok
