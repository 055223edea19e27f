"""Chains of casts, and integer divisors that eager torch rejects."""

from __future__ import annotations

import pytest
import runtime
import torch

import coreai_torch
from coreai_torch.ir.types import narrow


class Call(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *inputs):
        return self.fn(*inputs)


def converted(fn, *inputs):
    exported = torch.export.export(Call(fn), inputs)
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    names = [s.arg.name for s in exported.graph_signature.input_specs if s.target is None]
    (result,) = runtime.run(program, dict(zip(names, inputs, strict=True))).values()
    return result


EDGES = (1e5, -1e5, 448.0, 449.0, 465.0, 57344.0, 61439.0, 61440.0, 1e-8, 0.3, -0.0)
ODD = (float("inf"), -float("inf"), float("nan"))


@pytest.mark.parametrize("narrow", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16])
@pytest.mark.parametrize("wide", [torch.float32, torch.float16])
def test_cast_to_a_narrower_float_and_back(narrow, wide):
    x = torch.tensor(EDGES + ODD).to(wide)
    got = converted(lambda x: x.to(narrow).to(wide), x)
    torch.testing.assert_close(got, x.to(narrow).to(wide), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("middle", [torch.int32, torch.int8, torch.uint8, torch.bool])
def test_cast_to_integers_and_back(middle):
    x = torch.tensor([1.5, -1.5, 0.3, 2.5, 100.9, -0.0])
    x = x if middle.is_signed else x.abs()  # torch leaves the cast of others undefined
    got = converted(lambda x: x.to(middle).to(torch.float32), x)
    torch.testing.assert_close(got, x.to(middle).to(torch.float32), rtol=0, atol=0)


def test_complex_logarithm_of_a_negative_number():
    x = torch.tensor([-1.0, -2.5, 3.0])
    got = converted(lambda x: torch.view_as_real(torch.log(x.to(torch.complex64))), x)
    want = torch.view_as_real(torch.log(x.to(torch.complex64)))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


DIVISIONS = {
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8])
@pytest.mark.parametrize("name", DIVISIONS)
def test_integer_division_by_zero_affects_only_its_element(name, dtype):
    """Torch raises; a compiled program must not crash, and the other elements must be right."""
    least = torch.iinfo(dtype).min
    x = torch.tensor([7, 9, 5, least], dtype=dtype)
    y = torch.tensor([0, 4, 0, 3], dtype=dtype)
    got, sound = converted(DIVISIONS[name], x, y), y != 0
    assert got[sound].tolist() == DIVISIONS[name](x[sound], y[sound]).tolist()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8])
def test_smallest_integer_divided_by_minus_one_wraps(dtype):
    """Eager torch may crash on the quotient; two's complement defines it."""
    least = torch.iinfo(dtype).min
    x, y = torch.tensor([least, 6], dtype=dtype), torch.tensor([-1, -1], dtype=dtype)
    for name in ("floor", "trunc"):
        assert converted(DIVISIONS[name], x, y).tolist() == [least, -6]
    for name in ("remainder", "fmod"):
        assert converted(DIVISIONS[name], x, y).tolist() == [0, 0]


WITH_SIZES = {
    "x / rows": lambda x: x / x.shape[0],
    "x * columns ** -0.5": lambda x: x * (x.shape[1] ** -0.5),
    "half + rows": lambda x: x.half() + x.shape[0],
    "half * (1 / rows)": lambda x: x.half() * (1 / x.shape[0]),
    "rows - x": lambda x: x.shape[0] - x,
    "x // rows": lambda x: x // x.shape[0],
    "arange % columns": lambda x: torch.arange(x.shape[0]) % x.shape[1],
    "arange // columns": lambda x: torch.arange(x.shape[0]) // x.shape[1],
    "arange << columns": lambda x: torch.arange(x.shape[0]) << x.shape[1],
    "x ** rows": lambda x: x ** x.shape[0],
    "rows ** x": lambda x: torch.pow(x.shape[0], x),
    "x > columns": lambda x: x > x.shape[1],
    "clamp(max=rows)": lambda x: x.clamp(max=x.shape[0]),
    "where": lambda x: torch.where(x > 0, x, x.shape[0]),
    "add(alpha=rows)": lambda x: torch.add(x, x, alpha=x.shape[0]),
    "lerp": lambda x: torch.lerp(x, x * 2, x.shape[0] / 10),
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, 1 / x.shape[0]),
    "softplus": lambda x: torch.nn.functional.softplus(x, beta=x.shape[0]),
}


@pytest.mark.parametrize("name", WITH_SIZES)
def test_arithmetic_on_a_dynamic_size(name):
    fn, auto = WITH_SIZES[name], torch.export.Dim.AUTO
    exported = torch.export.export(
        Call(lambda x: fn(x)), (torch.randn(3, 4),), dynamic_shapes=(({0: auto, 1: auto},),)
    )
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    (port,) = (s.arg.name for s in exported.graph_signature.input_specs)
    for shape in ((3, 4), (5, 2)):
        x = torch.linspace(-2, 3, shape[0] * shape[1]).reshape(shape)
        (got,), want = runtime.run(program, {port: x}).values(), fn(x)
        want = want.to(narrow(want.dtype))
        near = 1e-3 if want.dtype == torch.float16 else 1e-5
        torch.testing.assert_close(got, want, rtol=near, atol=near, equal_nan=True)


ROUND_TRIPS = [
    lambda x: x.long().float(),
    lambda x: x.long().reshape(8, 6).t().half(),
    lambda x: x.long()[None].expand(1, 6, 8).float(),
    lambda x: torch.cat([x.long()]).bfloat16(),
    lambda x: x.to(torch.int16).to(x.dtype),
    lambda x: (x + 20).int().float() - 20,
    lambda x: x.long().float().long(),
]


@pytest.mark.parametrize("fn", ROUND_TRIPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_fraction_is_lost_in_a_cast_to_integers_and_back(fn, dtype):
    x = torch.linspace(-99.5, 99.5, 48).reshape(6, 8).to(dtype)
    want = fn(x)
    assert torch.equal(converted(fn, x), want.to(narrow(want.dtype)))


@pytest.mark.parametrize("fn", [lambda x: x.float().long(), lambda x: x.float()[None].int()])
def test_an_integer_is_rounded_in_a_cast_to_floats_and_back(fn):
    x = torch.tensor([2**24 + 1, -(2**24) - 1, 5, -7])
    assert torch.equal(converted(fn, x), fn(x).int())


@pytest.mark.parametrize("fn", [torch.floor, torch.ceil, torch.trunc])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_finite_number_of_16_bits_is_rounded_as_in_torch(fn, dtype):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    x = x[x.isfinite()]
    assert torch.equal(converted(fn, x), fn(x))


@pytest.mark.parametrize("divisor", [1, 2, -3, 12, 100, 0.25, 0.1, -0.3])
def test_floor_division_of_floats_follows_the_exact_remainder(divisor):
    whole = torch.arange(-3000, 3000) * torch.tensor(divisor)
    x = torch.cat([whole, torch.linspace(-1e4, 1e4, 4001)])
    assert torch.equal(converted(lambda x: x // divisor, x), x // divisor)
