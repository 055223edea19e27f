"""Lower erfc, erfcx, erfinv, ndtri, lgamma, digamma, igamma and igammac.

All are formulas in torch. The polynomials without a reference were fitted for this project:
near-minimax on the interval in their comment, with an error of at most two float32 units in the
last place. igamma uses a power series, a continued fraction, and Temme's expansion for large `a`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import T, bf16, f16, f32, i32
from ...torch_compat import aten
from .._lib.approximation import in_float32, polynomial
from .._lib.loops import Step, steps

_INF, _NAN = float("inf"), float("nan")
_EDGES = f32(12, values=(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -4.0, 9.0, _INF, -_INF, _NAN))
_ALIKE: list[T] = [f32(2, 40), f32(60, low=-9, high=9), f16(9), bf16(9), i32(5), f32()]
_CASES = [case(t) for t in (_EDGES, *_ALIKE)]

# erfcx(x) * (1 + 2 x) in t = 1 - 7.5 / (x + 3.75), for x from 0 to infinity.
_ERFCX = (
    1.237512631, -0.140240659, 0.003585438018, 0.08227843388, -0.1088045646, 0.09229069186,
    -0.05868825182, 0.02840942988, -0.009764691125, 0.001675734824, 0.0003253891605,
    -0.0002240522721, 2.363454958e-5,
)  # fmt: skip


def _erfcx_positive(x: Tensor) -> Tensor:
    """Return erfcx of non-negative arguments."""
    return polynomial(1 - 7.5 / (x + 3.75), _ERFCX) / (1 + 2 * x)


def _exp_of_square(x: Tensor, sign: float) -> Tensor:
    """Return exp(sign * x * x) for x < 32.

    Rounding the square would give a relative error of 5e-6 at 9.
    """
    coarse = torch.round(x * 64) / 64  # its square is exact
    return torch.exp(sign * coarse * coarse) * torch.exp(sign * (x - coarse) * (x + coarse))


@decomposes(
    aten.erfc.default,
    cases=[
        case(
            f32(90, low=-3, high=9),
            tolerance=(2e-6, 0.0),
            because="the tail is small and needs a relative tolerance",
        ),
        *_CASES,
    ],
)
@in_float32
def erfc(x: Tensor) -> Tensor:
    magnitude = x.abs().clamp(max=20)  # erfc(20) is 0 in float32
    tail = _erfcx_positive(magnitude) * _exp_of_square(magnitude, -1)
    return torch.where(magnitude < 0.5, 1 - torch.erf(x), torch.where(x < 0, 2 - tail, tail))


@decomposes(
    aten.special_erfcx.default,
    cases=[
        *(case(t) for t in (_EDGES, f32(2, 40), i32(5), f32())),
        case(
            f32(40, low=-9, high=9),
            tolerance=(1e-5, 0.0),
            because="it grows exponentially for negative arguments",
        ),
    ],
)
@in_float32
def erfcx(x: Tensor) -> Tensor:
    magnitude = x.abs()
    tail = _erfcx_positive(magnitude)
    return torch.where(x < 0, 2 * _exp_of_square(magnitude.clamp(max=12), 1) - tail, tail)


# M. Giles, "Approximating the erfinv function", in w - 2.5 and in sqrt(w) - 3.
_ERFINV_NEAR = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
    -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
_ERFINV_FAR = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
)  # fmt: skip


@decomposes(
    aten.erfinv.default,
    cases=[
        case(f32(90, low=-1.0, high=1.0)),
        case(f32(6, values=(0.9999999, -0.9999999, 1e-8, 1.5, -1.5, 0.99))),
        case(i32(3, values=(0, 1, -1))),
        *(case(t) for t in (_EDGES, f16(9, low=-1.0, high=1.0), bf16(9, low=-1.0, high=1.0))),
    ],
)
@in_float32
def erfinv(x: Tensor) -> Tensor:
    w = -torch.log((1 - x) * (1 + x))
    near = polynomial(w - 2.5, _ERFINV_NEAR)
    far = polynomial(torch.sqrt(w) - 3, _ERFINV_FAR)
    return x * torch.where(x.abs() == 1, _INF, torch.where(w < 5, near, far))


# M. Wichura, algorithm AS 241 (PPND7): numerators and denominators by distance from 0.5.
_NDTRI = (
    ((3.3871327179, 50.434271938, 159.29113202, 59.109374720),
     (1.0, 17.895169469, 78.757757664, 67.187563600)),
    ((1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103),
     (1.0, 0.73700164250, 0.12021132975)),
    ((6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997),
     (1.0, 0.24197894225, 0.012258202635)),
)  # fmt: skip


@decomposes(
    aten.special_ndtri.default,
    cases=[
        case(f32(90, low=0.0, high=1.0)),
        case(f32(6, values=(1e-30, 1e-10, 1 - 1e-7, 0.0, 1.0, 1.5))),
        case(i32(2, values=(0, 1))),
        case(_EDGES),
    ],
)
@in_float32
def ndtri(p: Tensor) -> Tensor:
    middle, close, far = _NDTRI
    q = p - 0.5
    r = 0.180625 - q * q
    inner = q * polynomial(r, middle[0]) / polynomial(r, middle[1])
    depth = torch.sqrt(-torch.log(torch.where(q < 0, p, 1 - p)))
    outer = torch.where(
        depth <= 5,
        polynomial(depth - 1.6, close[0]) / polynomial(depth - 1.6, close[1]),
        polynomial(depth - 5, far[0]) / polynomial(depth - 5, far[1]),
    )
    outer = torch.where((p == 0) | (p == 1), _INF, outer)
    return torch.where(q.abs() <= 0.425, inner, torch.where(q < 0, -outer, outer))


# lgamma(x) / ((x - 1) (x - 2)) in x - 2, for x from 1 to 3: both zeros are factored out.
_LGAMMA = (
    0.4227843351, -0.1003176689, 0.03296517265, -0.01237692854, 0.004995238859,
    -0.002147659951, 0.0009338880862, -0.0003204031966, 0.000142624333, -0.0001583338466,
    7.334844066e-5,
)  # fmt: skip
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)


def log_gamma(x: Tensor) -> Tensor:
    """Return lgamma of positive arguments."""
    near_one = x < 1
    zeros = torch.where(near_one, x * (x - 1), (x - 1) * (x - 2))
    near = zeros * polynomial(torch.where(near_one, x - 1, x - 2), _LGAMMA)
    near = torch.where(near_one, near - torch.log(x), near)
    inverse = 1 / x
    correction = inverse * polynomial(inverse * inverse, _STIRLING)
    far = (x - 0.5) * (torch.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + correction)
    return torch.where(x < 3, near, far)


@decomposes(
    aten.lgamma.default,
    cases=[
        *_CASES,
        case(f32(60, low=0.01, high=4.0)),
        case(f32(8, values=(1e-40, -1e-6, 1e-6, 35.5, 1e6, 3e37, 170.0, 2.9999))),
    ],
)
@in_float32
def lgamma(x: Tensor) -> Tensor:
    """Reflect negative arguments; the sine uses the distance to the nearest integer."""
    offset = x - torch.round(x)
    sine = torch.log(torch.sin(math.pi * offset.abs()))
    reflected = math.log(math.pi) - sine - log_gamma(1 - x)
    value = torch.where(x < 0, reflected, log_gamma(x))
    return torch.where((x == 0) | torch.isinf(x) | ((x < 0) & (offset == 0)), _INF, value)


_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)


def _digamma(x: Tensor) -> Tensor:
    """Return digamma of positive arguments: five recurrence steps, then the asymptotic series."""
    steps = torch.zeros_like(x)
    for k in range(5):
        steps = steps + 1 / (x + k)
    is_small = x < 5
    high = torch.where(is_small, x + 5, x)
    inverse = 1 / (high * high)
    series = torch.log(high) - 0.5 / high + inverse * polynomial(inverse, _DIGAMMA)
    return torch.where(is_small, series - steps, series)


@decomposes(aten.digamma.default, cases=[*_CASES, case(f32(60, low=0.01, high=20.0))])
@in_float32
def digamma(x: Tensor) -> Tensor:
    offset = x - torch.round(x)
    reflected = _digamma(1 - x) - math.pi / torch.tan(math.pi * offset)
    reflected = torch.where(offset == 0, _NAN, reflected)
    value = torch.where(x < 0, reflected, _digamma(x))
    value = torch.where(x == 0, -1 / x, value)  # -inf for 0.0, +inf for -0.0
    return torch.where(x == _INF, _INF, value)


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
_INCOMPLETE = [
    case(f32(13, 1, values=_ORDERS), f32(13, values=_ARGUMENTS)),
    case(f32(60, low=0.01, high=9.0), f32(60, low=0.01, high=9.0)),
    case(f16(5, low=0.5, high=5.0), f16(5, low=0.5, high=5.0)),
    case(bf16(5, low=0.5, high=5.0), bf16(1, low=0.5, high=5.0)),
    case(f32(values=(2.0,)), f32(3, low=0.5, high=5.0)),
]


@decomposes(aten.igamma.default, cases=_INCOMPLETE)
@in_float32
def igamma(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete(a, x, False)


@decomposes(aten.igammac.default, cases=_INCOMPLETE[:2])
@in_float32
def igammac(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete(a, x, True)
