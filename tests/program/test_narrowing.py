"""64-bit values are narrowed to 32 bits, and never wrapped silently."""

from __future__ import annotations

import pytest
import runtime
import torch
from staging import converted
from torch import nn

from coreai_torch.errors import NarrowingError


class Add(nn.Module):
    def __init__(self, constant):
        super().__init__()
        self.register_buffer("table", constant)

    def forward(self, x):
        return x + self.table


DTYPES = {
    torch.int64: torch.int32,
    torch.float64: torch.float32,
    torch.int32: torch.int32,
    torch.int16: torch.int16,
    torch.int8: torch.int8,
    torch.uint8: torch.uint8,
    torch.float32: torch.float32,
    torch.float16: torch.float16,
    torch.bfloat16: torch.bfloat16,
    torch.complex64: torch.complex64,
    torch.complex128: torch.complex64,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_round_trip(dtype):
    x, table = torch.tensor([1, 2, 3]).to(dtype), torch.tensor([10, 20, 30]).to(dtype)
    (got,) = runtime.run(converted(Add(table), x), {"x": x}).values()
    assert got.dtype == DTYPES[dtype]
    assert got.tolist() == [11, 22, 33]


def test_bool_round_trip():
    class Not(nn.Module):
        def forward(self, x):
            return ~x

    x = torch.tensor([True, False])
    (got,) = runtime.run(converted(Not(), x), {"x": x}).values()
    assert got.tolist() == [False, True]


@pytest.mark.parametrize(
    "constant",
    [
        torch.tensor([1, 2**31]),
        torch.tensor([-(2**31) - 1, 0]),
        torch.tensor([1.0, 1e300], dtype=torch.float64),
    ],
    ids=["too large", "too small", "too large a float"],
)
def test_constant_that_does_not_fit_is_rejected_by_name(constant):
    with pytest.raises(NarrowingError, match=r"constant 'table' holds .* fits torch\.\w+64"):
        converted(Add(constant), torch.zeros(2, dtype=constant.dtype))


def test_literal_that_does_not_fit_is_rejected():
    class Big(nn.Module):
        def forward(self, x):
            return x + 2**40

    with pytest.raises(NarrowingError, match=r"holds 1099511627776(.|\n)* at .*test_narrowing.py"):
        converted(Big(), torch.zeros(2, dtype=torch.int64))


def test_limits_of_32_bits_fit():
    edges = torch.tensor([2**31 - 1, -(2**31)])
    x = torch.zeros(2, dtype=torch.int64)
    (got,) = runtime.run(converted(Add(edges), x), {"x": x}).values()
    assert got.tolist() == edges.tolist()


def test_infinities_are_narrowed():
    table = torch.tensor([float("inf"), -float("inf")], dtype=torch.float64)
    (got,) = runtime.run(converted(Add(table), table * 0 + 1), {"x": torch.ones(2)}).values()
    assert got.tolist() == table.tolist()
