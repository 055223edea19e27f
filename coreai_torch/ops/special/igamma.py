"""Lower igamma and igammac: power series, continued fraction, and Temme's expansion for large a."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import bf16, f16, f32
from ...torch_compat import aten
from .._lib.approximation import in_float32, polynomial
from .._lib.loops import Step, steps
from .erf_gamma import log_gamma

_INF, _NAN = float("inf"), float("nan")
_LARGE = 16.0  # from here on Temme's expansion is accurate
_TERMS = 64  # terms of the series, and levels of the continued fraction, below _LARGE

# N. Temme, "The asymptotic expansion of the incomplete gamma functions": in eta, for 1 / a ** k.
_TEMME: Sequence[Sequence[float]] = (
    (-1 / 3, 1 / 12, -1.4814814814814815e-2, 1.1574074074074074e-3, 3.527336860670194e-4,
     -1.7875514403292181e-4, 3.9192631785224378e-5, -2.1854485106799922e-6,
     -1.85406221071516e-6, 8.296711340953086e-7),
    (-1.8518518518518519e-3, -3.4722222222222222e-3, 2.6455026455026455e-3,
     -9.9022633744855967e-4, 2.0576131687242798e-4, -4.0187757201646091e-7,
     -1.8098550334489978e-5, 7.6491609160811101e-6),
    (4.1335978835978836e-3, -2.6813271604938272e-3, 7.7160493827160494e-4,
     2.0093878600823045e-6, -1.0736653226365161e-4, 5.2923448829120125e-5),
    (6.4943415637860082e-4, 2.2947209362139918e-4, -4.6918949439525571e-4,
     2.6772063206283885e-4),
)  # fmt: skip
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
_HALF_LOG = 0.5 * math.log(2 * math.pi)


def _depth(mu: Tensor) -> Tensor:
    """Return `mu - log(1 + mu)`, without cancellation of the leading terms near zero."""
    near = mu * mu * polynomial(mu, [(-1.0) ** k / (k + 2) for k in range(9)])
    return torch.where(mu.abs() < 0.15, near, mu - torch.log1p(mu))


def _prefactor(a: Tensor, x: Tensor) -> Tensor:
    """Return `x ** a * exp(-x) / gamma(a + 1)`, from the distance to its maximum at `x = a`."""
    safe = a.clamp(min=1e-30)
    inverse = 1 / a.clamp(min=3.0)
    far = inverse * polynomial(inverse * inverse, _STIRLING)
    log = torch.log(safe)
    near = log_gamma(a.clamp(0.5, 3.0)) - ((a - 0.5) * log - a + _HALF_LOG)
    correction = torch.where(a < 3, near, far)
    above = torch.exp(-a * _depth((x - a) / safe) - correction - _HALF_LOG - 0.5 * log)
    below = torch.exp(a * torch.log(x) - x - log_gamma(a.clamp(max=1.0) + 1))
    return torch.where(a < 1, below, above)


def _lower_series(a: Tensor, x: Tensor) -> Tensor:
    """Return the lower function divided by `_prefactor`, for `x < a + 1`, by its power series."""

    def body(k: Step, term: Tensor, total: Tensor, a: Tensor, x: Tensor) -> list[Tensor]:
        term = term * (x / (a + (k + 1)))
        return [term, total + term]

    one = torch.ones_like(x)
    return steps(_TERMS, body, [one, one], [a, x])[1]


def _upper_fraction(a: Tensor, x: Tensor) -> Tensor:
    """Return the upper function divided by `_prefactor * a`, for `x > a + 1`.

    The continued fraction is evaluated from the deepest level up.
    """

    def body(k: Step, below: Tensor, a: Tensor, x: Tensor) -> list[Tensor]:
        level = _TERMS - k
        return [x + (2 * level - 1) - a - level * (level - a) / below]

    start = x + (2 * _TERMS + 1) - a
    return 1 / steps(_TERMS, body, [start], [a, x])[0]


def _uniform(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """Return Temme's uniform expansion, for large `a`."""
    mu = ((x - a) / a).clamp(-0.999, 8.0)
    sign_of_mu = torch.where(mu < 0, -1.0, 1.0)
    depth = _depth(mu)
    eta = (sign_of_mu * (2 * depth).sqrt()).clamp(-2.5, 2.5)
    total, inverse = torch.zeros_like(a), torch.ones_like(a)
    for fit in _TEMME:
        total, inverse = total + inverse * polynomial(eta, fit), inverse / a
    remainder = torch.exp(-a * depth) * total / (2 * math.pi * a).sqrt()
    sign = 1.0 if upper else -1.0
    return 0.5 * torch.erfc(sign * sign_of_mu * (a * depth).sqrt()) + sign * remainder


def _incomplete(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    a, x = torch.broadcast_tensors(a, x)
    small, clamped_x = a.clamp(1e-30, _LARGE), x.clamp(1e-38, 1e30)
    is_low = clamped_x < small + 1
    prefactor = _prefactor(small, clamped_x)
    low = prefactor * _lower_series(small, torch.where(is_low, clamped_x, small))
    high = prefactor * small * _upper_fraction(small, torch.where(is_low, small + 2, clamped_x))
    moderate = torch.where(is_low, 1 - low, high) if upper else torch.where(is_low, low, 1 - high)
    large = a.clamp(_LARGE, 1e30)
    value = torch.where(a < _LARGE, moderate, _uniform(large, clamped_x, upper))
    value = torch.where(torch.isnan(a) | torch.isnan(x), _NAN, value)
    return _at_limits(a, x, value, *((1.0, 0.0) if upper else (0.0, 1.0)))


def _at_limits(a: Tensor, x: Tensor, value: Tensor, at_zero: float, at_infinity: float) -> Tensor:
    """Handle zeros and infinities, which torch checks in this order, before NaN."""
    value = torch.where(torch.isinf(x), at_infinity, value)
    value = torch.where(torch.isinf(a), torch.where(torch.isinf(x), _NAN, at_zero), value)
    value = torch.where(x == 0, at_zero, value)
    value = torch.where(a == 0, torch.where(x > 0, at_infinity, _NAN), value)
    return torch.where((a < 0) | (x < 0), _NAN, value)


_ORDERS = (0.0, 1e-3, 0.3, 1.0, 2.5, 7.0, 15.9, 16.1, 40.0, 300.0, _INF, -1.0, _NAN)
_ARGUMENTS = (0.0, 1e-4, 0.5, 1.0, 3.0, 8.0, 14.0, 17.0, 39.0, 320.0, _INF, -1.0, _NAN)
_CASES = [
    case(f32(13, 1, values=_ORDERS), f32(13, values=_ARGUMENTS)),
    case(f32(60, low=0.01, high=9.0), f32(60, low=0.01, high=9.0)),
    case(f16(5, low=0.5, high=5.0), f16(5, low=0.5, high=5.0)),
    case(bf16(5, low=0.5, high=5.0), bf16(1, low=0.5, high=5.0)),
    case(f32(values=(2.0,)), f32(3, low=0.5, high=5.0)),
]


@decomposes(aten.igamma.default, cases=_CASES)
@in_float32
def igamma(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete(a, x, False)


@decomposes(aten.igammac.default, cases=_CASES[:2])
@in_float32
def igammac(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete(a, x, True)
