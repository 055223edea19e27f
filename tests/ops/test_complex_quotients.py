"""Quotients of complex numbers whose squared magnitude is 0 or infinite in float32."""

from __future__ import annotations

import pytest
import torch
from module_runner import check

_INF, _NAN = float("inf"), float("nan")
_DIVISORS = torch.tensor(
    [
        1e-30 + 1e-30j, 1e-20 - 1e-22j, 1e30 + 1e30j, 1e-40 + 0j, 3e38 + 3e38j, -1e-30j, 3e38j,
        0j, complex(0.0, -0.0), complex(-0.0, 0.0), 3 - 4j, -0.3 + 4j, -5 + 0j, 7j,
        complex(_INF, 1), complex(1, -_INF), complex(_INF, _INF), complex(_NAN, 1), 1e-30 - 7j,
    ],
    dtype=torch.complex64,
)  # fmt: skip
_DIVIDENDS = torch.tensor([1 + 2j, -3e-20 + 1e-21j, 1e25 - 2e20j, 2 + 0j], dtype=torch.complex64)
_RELATIVE = (1e-5, 1e-44)  # the least subnormal numbers have one digit


def _parts(*results):
    return [torch.view_as_real(result) for result in results]


def test_quotients():
    def quotients(x, y):
        return _parts(x / y, torch.div(x, y), torch.addcdiv(y, x, y))

    check(quotients, (_DIVIDENDS[:, None], _DIVISORS), tolerance=_RELATIVE)


def test_reciprocals():
    def reciprocals(y):
        return _parts(y.reciprocal(), y**-1, torch.pow(y, -1))

    check(reciprocals, (_DIVISORS,), tolerance=_RELATIVE)


def test_quotient_with_real_numbers():
    def quotients(x, y):
        return _parts(x / y.real, x.real / y, x / 3e-30, x / 2j)

    check(quotients, (_DIVIDENDS[:, None], _DIVISORS), tolerance=_RELATIVE)


@pytest.mark.parametrize("number", [2.0, -1e-25, 1e30j])
def test_number_by_complex_numbers(number):
    kept = _DIVISORS.abs().isfinite() & (_DIVISORS != 0)
    check(lambda y: _parts(number / y), (_DIVISORS[kept],), tolerance=_RELATIVE)


def test_root_of_a_tiny_number():
    tiny = torch.tensor([1e-38 + 1e-38j, 1e-30 - 2e-31j, 1e30 + 1j], dtype=torch.complex64)
    check(lambda z: _parts(z.rsqrt()), (tiny,), tolerance=(2e-5, 0.0))
