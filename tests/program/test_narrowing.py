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


LEAST, GREATEST = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
AT = torch.tensor([1])


class Filled(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("least", torch.tensor(LEAST))
        self.register_buffer("both", torch.tensor([LEAST, 5, GREATEST]))

    def forward(self, x, mask):
        return self.function(self, x, mask)


FILLERS = {
    "masked.amax": lambda m, x, mask: torch.masked.amax(x, 0, mask=mask),
    "masked.amin": lambda m, x, mask: torch.masked.amin(x, 0, mask=mask),
    "masked.argmax": lambda m, x, mask: torch.masked.argmax(x, 0, mask=mask),
    "masked.argmin": lambda m, x, mask: torch.masked.argmin(x, 0, mask=mask),
    "where": lambda m, x, mask: torch.where(mask, x, LEAST),
    "where, greatest": lambda m, x, mask: torch.where(mask, GREATEST, x),
    "full_like": lambda m, x, mask: torch.where(mask, x, torch.full_like(x, LEAST)),
    "expanded buffer": lambda m, x, mask: torch.where(mask, x, m.least.expand(3)),
    "masked_fill": lambda m, x, mask: x.masked_fill(mask, m.least),
    "clamp": lambda m, x, mask: x.clamp(LEAST, 7),
    "clamp by tensors": lambda m, x, mask: torch.clamp(x, m.both, None),
    "maximum": lambda m, x, mask: torch.maximum(x, m.both),
    "minimum": lambda m, x, mask: torch.minimum(x, torch.tensor(GREATEST)),
    "found again": lambda m, x, mask: torch.where(mask, x, LEAST) == LEAST,
    "compared": lambda m, x, mask: x > LEAST,
    "segments": lambda m, x, mask: x.new_full((3,), LEAST).scatter_reduce(
        0, torch.tensor([0, 0, 2]), x, "amax"
    ),
    "scatter": lambda m, x, mask: x.scatter(0, AT, LEAST),
    "index_put": lambda m, x, mask: x.index_put((AT,), m.least),
    "index_fill": lambda m, x, mask: x.index_fill(0, AT, GREATEST),
    "pad": lambda m, x, mask: nn.functional.pad(x, (1, 1), value=LEAST),
    "cat": lambda m, x, mask: torch.cat([x, x.new_full((2,), LEAST)]),
}
GIVEN = torch.tensor([4, -7, 9]), torch.tensor([True, False, True])


def _with_extremes_of_int32(want):
    if want.dtype != torch.int64:
        return want
    return want.clamp(torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max).int()


@pytest.mark.parametrize("name", FILLERS)
def test_filler_becomes_the_extreme_of_int32(name):
    model = Filled(FILLERS[name])
    program = converted(model, *GIVEN)
    program.optimize()
    (got,) = runtime.run(program, dict(zip(("x", "mask"), GIVEN, strict=True))).values()
    assert torch.equal(got, _with_extremes_of_int32(model(*GIVEN)))


def test_filler_of_a_dynamic_size():
    model = Filled(lambda m, x, mask: torch.maximum(torch.full_like(x, LEAST), x).amax())
    program = converted(model, *GIVEN, dynamic_shapes=({0: torch.export.Dim("n")}, None))
    (got,) = runtime.run(program, dict(zip(("x", "mask"), GIVEN, strict=True))).values()
    assert got == 9


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x, mask: x + LEAST,
        lambda m, x, mask: x + m.both,
        lambda m, x, mask: (x, m.both * 1),
        lambda m, x, mask: (torch.maximum(x, m.least), x - m.least),
        lambda m, x, mask: torch.maximum(x, torch.tensor(LEAST + 1)),
        lambda m, x, mask: torch.full_like(x, LEAST),
        lambda m, x, mask: x.index_put((AT,), m.least, accumulate=True),
        lambda m, x, mask: x.new_full((3,), LEAST).scatter_reduce(0, AT, x, "sum"),
    ],
)
def test_extreme_elsewhere_is_refused(function):
    with pytest.raises(NarrowingError, match=r"fits torch\.int64 but not torch\.int32"):
        converted(Filled(function), *GIVEN)


def test_unsigned_constant_that_does_not_fit_is_named_correctly():
    class Returned(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("big", torch.tensor([1, 2**64 - 1], dtype=torch.uint64))

        def forward(self, x):
            return x, self.big.view(2, 1)

    with pytest.raises(NarrowingError, match=f"holds {2**64 - 1}, which fits torch.uint64"):
        converted(Returned(), torch.zeros(2))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_buffer_keeps_its_numbers(dtype):
    class Returned(nn.Module):
        def __init__(self):
            super().__init__()
            numbers = torch.tensor([1, torch.iinfo(dtype).max % 2**32], dtype=dtype)
            self.register_buffer("big", numbers)

        def forward(self, x):
            return x, self.big.view(2, 1)

    _, got = runtime.run(converted(Returned(), torch.zeros(2)), {"x": torch.zeros(2)}).values()
    assert got.flatten().tolist() == [1, torch.iinfo(dtype).max % 2**32]
