"""One warning lists all 64-bit arithmetic that may overflow 32 bits, and nothing else."""

from __future__ import annotations

import warnings

import pytest
import torch

import coreai_torch
from coreai_torch.capture import overflow
from coreai_torch.errors import NarrowingWarning

AUTO = torch.export.Dim.AUTO
LONGS = torch.arange(12).reshape(3, 4)


class Model(torch.nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs):
        return self.function(*inputs, *self.buffers())


def exported(function, *inputs, dynamic=None, **buffers):
    model = Model(function, **buffers)
    program = torch.export.export(model, inputs, dynamic_shapes=dynamic and (dynamic,))
    return program.run_decompositions(coreai_torch.get_decomp_table())


def warned(program):
    """Return the ops that the warning lists; an empty list without a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        overflow.warn(program)
    ours = [w for w in caught if issubclass(w.category, NarrowingWarning)]
    assert len(ours) <= 1
    return [
        line.partition("aten.")[2].partition(".")[0]
        for w in ours
        for line in str(w.message).splitlines()
        if line.startswith("aten.")
    ]


AT_RISK = {
    "sum of unknown numbers": (lambda x: x.sum(), ["sum"]),
    "sum along an axis": (lambda x: x.sum(1), ["sum"]),
    "running sum": (lambda x: x.cumsum(0), ["cumsum"]),
    "product": (lambda x: x.prod(), ["prod"]),
    "running product": (lambda x: x.cumprod(0), ["cumprod"]),
    "matrix product": (lambda x: x @ x.T, ["matmul"]),
    "sum of int32": (lambda x: x.to(torch.int32).sum(), ["sum"]),
    "sum of floats cut to integers": (lambda x: (x * 0.5).to(torch.int64).sum(), ["sum"]),
    "hash": (lambda x: x * 73856093, ["mul"]),
    "hash of a bounded number": (lambda x: (x & 0xFFFFF) * 7919, ["mul"]),
    "shift to the upper half": (lambda x: x << 16, ["__lshift__"]),
    "power": (lambda x: 10**x, ["pow"]),
    "product of bounded numbers": (lambda x: (x % 1000).prod(), ["prod"]),
    "sum of large bounded numbers": (lambda x: x.clamp(0, 2**30).sum(), ["sum"]),
    "scatter": (lambda x: x.scatter_add(0, x % 3, x), ["scatter_add"]),
    "both": (lambda x: (x.sum(), x.prod()), ["sum", "prod"]),
}


@pytest.mark.parametrize(("function", "ops"), AT_RISK.values(), ids=list(AT_RISK))
def test_arithmetic_that_may_overflow_is_reported(function, ops):
    assert warned(exported(function, LONGS)) == ops


SAFE = {
    "count of a comparison": lambda x: (x > 3).sum(),
    "mask as integers": lambda x: (x > 3).to(torch.int64).cumsum(1) - 1,
    "choice of small numbers": lambda x: torch.where(x > 3, 7, -1).sum(),
    "bounded below and above": lambda x: x.clamp(-5, 100).sum(),
    "bounded by other tensors": lambda x: torch.minimum(torch.relu(x), torch.full_like(x, 9)).sum(),
    "remainder": lambda x: (x % 1000).sum(),
    "remainder times a large factor": lambda x: (x % 1000) * 2**20,
    "low bits": lambda x: (x & 0xFF).cumsum(0),
    "positions": lambda x: torch.arange(x.shape[1]).sum() + x,
    "places": lambda x: x.argmax(1).sum() + x.topk(2).indices.sum() + x.sort().indices.sum(),
    "counted products": lambda x: (x > 3).to(torch.int64).prod(1),
    "matrix product of masks": lambda x: (x > 3).to(torch.int64) @ (x > 2).to(torch.int64).T,
    "short scale": lambda x: x * 1000 + 1,
    "two unknown factors": lambda x: x * x,
    "powers of the small": lambda x: (x % 10) ** 3,
    "moved about": lambda x: torch.cat([x % 7, x.T.reshape(3, 4) % 5]).flip(0)[1:].sum(),
    "written into": lambda x: torch.zeros_like(x).index_put((x[:, 0] % 3,), (x % 5)).sum(),
    "floats": lambda x: (x * 1e9).sum(),
    "int32 arithmetic": lambda x: x.to(torch.int32) * 2**20,
}


@pytest.mark.parametrize("function", SAFE.values(), ids=list(SAFE))
def test_arithmetic_that_fits_is_not_reported(function):
    assert warned(exported(function, LONGS)) == []


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int16], ids=str)
def test_small_dtypes_are_not_reported(dtype):
    assert warned(exported(lambda x: x.sum(), torch.ones(100, dtype=dtype))) == []


def test_sum_of_many_small_numbers_is_reported():
    many = torch.ones(2**16, 2, dtype=torch.int16)
    assert warned(exported(lambda x: x.sum(), many)) == ["sum"]
    assert warned(exported(lambda x: x.sum(1), many)) == []


def test_values_of_constants_are_used():
    def function(x, table):
        return table.sum() + x, (table * x.clamp(0, 9)).sum()

    assert warned(exported(function, LONGS[0], table=torch.tensor([1, 2, 3, 4]))) == []
    large = torch.tensor([2**20, 2**30, 2**30, 2**30])
    assert warned(exported(function, LONGS[0], table=large)) == ["sum", "mul", "sum"]


def test_dynamic_sizes_are_assumed_to_be_moderate():
    sizes = {0: torch.export.Dim("n", max=1000), 1: AUTO}
    program = exported(lambda x: (x % 1000).sum(0), LONGS, dynamic=(sizes,))
    assert warned(program) == []
    program = exported(lambda x: (x % 2**20).sum(1), LONGS, dynamic=(sizes,))
    assert warned(program) == ["sum"]


def test_arithmetic_inside_branches_is_reported():
    def function(x):
        return torch.cond(x[0, 0] > 0, lambda x: x.sum(), lambda x: x.amax(), (x,))

    assert warned(exported(function, LONGS)) == ["sum"]


def test_converter_warns_once_with_location_and_hint():
    program = exported(lambda x: (x.sum(), x.cumsum(0)), LONGS)
    converter = coreai_torch.TorchConverter().add_exported_program(program)
    with pytest.warns(NarrowingWarning) as caught:
        converter.to_coreai()
    (message,) = [str(w.message) for w in caught]
    assert "%sum_1 = aten.sum.dim_IntList" in message
    assert "%cumsum = aten.cumsum.default" in message
    assert "test_overflow.py" in message
    assert message.count("\n  try   ") == 2
